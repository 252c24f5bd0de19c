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

/// What has gone by of a stream, of `length` bytes where that is known, with its rate.
pub(crate) fn stream(length: Option<u64>, json: bool) -> ProgressBar {
    if let Some(length) = length {
        return bytes(length, json);
    }
    let spinner = bar(0, json);
    let template = "{spinner} {bytes} {binary_bytes_per_sec}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        spinner.set_style(style);
    }
    spinner
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
