use super::*;

#[test]
fn a_table_of_rates_fits_80_columns() {
    for taken in [TakenAt::Sender, TakenAt::Receiver, TakenAt::Connecting, TakenAt::Both] {
        let mut table = rates_table(taken);
        table.add_row([
            "1000000 B",
            "123.45 M",
            "100 %",
            "123.45 GB/s",
            "1234.567",
            "not counted",
            "123.4 MiB",
        ]);
        let widest = table.to_string().lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{table}");
    }
}
