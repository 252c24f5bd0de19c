use super::*;

#[test]
fn tests_have_the_budgets_that_there_are() {
    run().unwrap();
}

#[test]
fn a_budget_is_found_unless_it_has_a_reason() {
    let of = |text: &str| written(text, DEFAULTS);
    let none: [usize; 0] = [];
    assert_eq!(of("a\nTransport { timeout: 8, ..living() }"), [2]);
    assert_eq!(of("// About retries: two.\nTransport { retry_count: 2, ..living() }"), none);
    assert_eq!(of("attr.retry_cnt = 7;"), [1]);
    assert_eq!(of("Config { rnr_retry: 6, min_rnr_timer: 1 }"), [1]);
    assert_eq!(of("Config { rnr_retry: 7 }; Config { rnr_retry: 0 }"), none);
    assert_eq!(of("let timeout = budget.timeout; recv_timeout(3); // timeout: 3"), none);
    assert_eq!(of("..Config::default()\nP::Config::default()"), [1, 2]);
    assert_eq!(of("BufferConfig::default()"), none);
}
