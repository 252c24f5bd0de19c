//! Output of perftest.
//!
//! Facts about a run are printed as `Name : value`, two in a line sometimes; the result is the
//! line below the one that begins with `#bytes`.

use anyhow::{Context, Result, ensure};

use super::cases::{CompareQuantity, Comparison};

const MIB: f64 = 1_048_576.0;

/// Nanoseconds, or messages a second, of a run's output.
///
/// # Errors
/// It is not the output of the run that was asked for.
pub(super) fn figure(comparison: &Comparison, output: &str) -> Result<f64> {
    let result = row(output).context("it printed no result")?;
    let column = |at: usize| -> Result<f64> {
        let text = result.get(at).context("its result has too few columns")?;
        text.parse().with_context(|| format!("its result has {text} for a number"))
    };
    let size = column(0)?;
    ensure!(size == f64::from(comparison.size), "its result is about {size} bytes");
    match comparison.case.kind {
        // #bytes #iterations t_min t_max t_typical t_avg …, in µs; the typical one is
        // the median.
        CompareQuantity::Latency => Ok(column(4)? * 1e3),
        // #bytes #iterations peak average (both MiB/s) messages (millions/s)
        CompareQuantity::Rate => Ok(finer(column(3)?, column(4)?, size)),
    }
}

/// Messages a second, from the column that has more digits: one has two decimals, the
/// other one six.
fn finer(mib_per_s: f64, millions_per_s: f64, size: f64) -> f64 {
    if mib_per_s * 1e2 > millions_per_s * 1e6 {
        mib_per_s * MIB / size
    } else {
        millions_per_s * 1e6
    }
}

fn row(output: &str) -> Option<Vec<&str>> {
    let mut lines = output.lines();
    lines.find(|line| line.trim_start().starts_with("#bytes"))?;
    Some(lines.next()?.split_whitespace().collect())
}

/// Returns how many bytes it sends inline at most, if it says so.
pub(super) fn inline_bytes(output: &str) -> Option<u32> {
    let line = output.lines().find(|line| line.trim_start().starts_with("Max inline data"))?;
    line.split_once(':')?.1.trim().strip_suffix("[B]")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::cases::chosen;
    use super::*;

    const LATENCY: &str = "\
Correlation coefficient r^2: 0.862553 < 0.9
---------------------------------------------------------------------------------------
                    Send Latency Test
 Dual-port       : OFF\t\tDevice         : rxe0
 TX depth        : 1
 Mtu             : 4096[B]
 Max inline data : 16[B]
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 16      1000          13.51          11898.35      14.56    \t       1091.42     \t1788.88\t\t4476.11 \t\t11898.35
---------------------------------------------------------------------------------------
";

    const RATE: &str = "\
---------------------------------------------------------------------------------------
                    RDMA_Read BW Test
 CQ Moderation   : 1
 Outstand reads  : 16
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      200              60.80              33.22  \t\t   0.000531
---------------------------------------------------------------------------------------
";

    const SMALL: &str = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 16         5000             0.75               0.32   \t\t   0.021123
";

    fn figure_of(name: &str, size: u32, output: &str) -> Result<f64> {
        figure(&chosen(&[name.to_owned()], &[size]).unwrap()[0], output)
    }

    #[test]
    fn latency_is_the_median_in_nanoseconds() {
        assert_eq!(figure_of("send-lat", 16, LATENCY).unwrap(), 14_560.0);
        assert_eq!(inline_bytes(LATENCY), Some(16));
    }

    #[test]
    fn rates_are_read_where_they_have_more_digits() {
        let large = figure_of("read-bw", 65536, RATE).unwrap();
        assert!((large - 531.52).abs() < 0.01, "{large}");
        assert!((figure_of("send-bw", 16, SMALL).unwrap() - 21_123.0).abs() < 0.5);
        assert_eq!(inline_bytes(RATE), None);
    }

    #[test]
    fn whatever_else_it_prints_is_no_result() {
        assert!(figure_of("send-lat", 512, LATENCY).is_err(), "another size");
        assert!(figure_of("send-bw", 16, "").is_err());
        assert!(figure_of("send-bw", 16, " #bytes #iterations\n 16 5000\n").is_err());
        assert!(figure_of("send-bw", 16, " #bytes #iterations\n 16 a b c d\n").is_err());
    }
}
