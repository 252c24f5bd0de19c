//! Elements of a drawing.

use maud::{Markup, html};

pub(super) fn segment(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    html! {
        line class=(class) x1=(px(from.0)) y1=(px(from.1)) x2=(px(to.0)) y2=(px(to.1)) {}
    }
}

pub(super) fn error_bar(class: &str, x: f64, low: f64, high: f64) -> Markup {
    let (left, right) = (px(x - 3.0), px(x + 3.0));
    let (x, low, high) = (px(x), px(low), px(high));
    html! {
        path class=(format!("bar {class}"))
            d=(format!("M{x} {low}V{high}M{left} {low}H{right}M{left} {high}H{right}")) {}
    }
}

/// A length in the drawing.
pub(super) fn px(length: f64) -> String {
    format!("{length:.1}")
}
