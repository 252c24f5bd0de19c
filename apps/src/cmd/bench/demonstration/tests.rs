use super::*;

fn sample(messages: u64, line_ns: [f64; 2]) -> Sample {
    let line = ResultLine::default().with_rates(messages, messages as f64);
    Sample { line, line_ns: line_ns.map(Some) }
}

fn rows(of_each: impl Fn(usize) -> Vec<Sample>) -> Rows {
    Rows::new(&(0..SIZES.len() * Preset::ALL.len()).map(of_each).collect::<Vec<_>>())
}

#[test]
fn rounds_of_two_distances_are_not_mixed() {
    let [near, far] = [[40.0; 2], [170.0; 2]];
    let moved = [40.0, 170.0];
    let rows = rows(|at| {
        vec![sample(100, near), sample(102, near), sample(20 + at as u64, far), sample(60, moved)]
    });
    let per_s = rows.measured.iter().flatten().map(|line| line.figure("messages_per_s"));
    assert_eq!(per_s.collect::<Vec<_>>(), [101.0; SIZES.len() * Preset::ALL.len()]);
    assert_eq!((rows.left_out, rows.all), (24, 48));
    assert_eq!(rows.line_ns, Some(40.0));
    assert!(rows.table().1.contains("24 of 48 rounds do not count"));
}

#[test]
fn a_row_says_what_it_is_not_to_be_taken_for() {
    let last = |at: usize| at % Preset::ALL.len() == Preset::ALL.len() - 1;
    let quiet = rows(|at| vec![sample(if last(at) { 120 } else { 100 }, [40.0; 2]); 3]);
    assert!(!quiet.table().1.contains('*'));
    let behind = rows(|at| vec![sample(if last(at) { 80 } else { 100 }, [170.0; 2]); 3]);
    assert_eq!(behind.table().1.matches("batched is behind sequential").count(), SIZES.len());
    let apart = rows(|_| [100, 100, 60].map(|n| sample(n, [40.0; 2])).to_vec());
    assert!(apart.table().1.contains("its rounds lie far apart"));
}

#[test]
fn the_legend_says_what_each_size_had() {
    let legend = legend();
    for (preset, line) in Preset::ALL.into_iter().zip(legend.lines()) {
        assert!(line.starts_with(preset.name()), "{legend}");
        for size in SIZES {
            let usual = Config::preset_for(preset, SIZES[0]);
            let config = Config::preset_for(preset, size);
            let named = line.contains(&format!("at {} {}", shown(size.into()), config.unacked));
            let differs = (config.unacked, config.batch) != (usual.unacked, usual.batch);
            assert_eq!(named, differs, "{size}: {legend}");
        }
    }
}
