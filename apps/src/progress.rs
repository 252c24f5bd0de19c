//! Progress on standard error, where a person looks at it.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `length` steps; nothing at all where standard error is no terminal.
pub(crate) fn bar(length: u64, json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} [{bar:30}] {pos}/{len} {msg} ({eta} left)");
    let bar =
        ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A bar of `bytes`, with their rate.
pub(crate) fn bytes(bytes: u64, json: bool) -> ProgressBar {
    let bar = bar(bytes, json);
    let template = "{spinner} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} ({eta} left)";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
