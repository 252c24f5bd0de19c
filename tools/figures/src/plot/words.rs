//! Labels of a chart, and upper bounds of their widths.

use maud::{Markup, html};

use super::element::px;

/// The height of the font, in units of the drawing.
pub(super) const FONT: f64 = 13.0;

#[cfg(test)]
/// Height above and below the base line, in em.
const ABOVE: f64 = 0.8;
#[cfg(test)]
const BELOW: f64 = 0.25;

/// The part of a label that is at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A label at a position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Label {
    pub(crate) x: f64,
    /// Base line.
    pub(crate) y: f64,
    pub(crate) anchor: Anchor,
    pub(crate) class: &'static str,
    pub(crate) content: String,
}

impl Label {
    pub(crate) fn left(&self) -> f64 {
        let width = width(&self.content);
        match self.anchor {
            Anchor::Start => self.x,
            Anchor::Middle => self.x - width / 2.0,
            Anchor::End => self.x - width,
        }
    }

    pub(crate) fn right(&self) -> f64 {
        self.left() + width(&self.content)
    }

    #[cfg(test)]
    pub(crate) fn top(&self) -> f64 {
        self.y - ABOVE * FONT
    }

    #[cfg(test)]
    pub(crate) fn bottom(&self) -> f64 {
        self.y + BELOW * FONT
    }

    pub(super) fn element(&self) -> Markup {
        let anchor = match self.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        html! {
            text class=(self.class) x=(px(self.x)) y=(px(self.y)) text-anchor=(anchor) {
                (self.content)
            }
        }
    }
}

/// An upper bound of the width of a text.
pub(super) fn width(text: &str) -> f64 {
    text.chars().map(|c| em(c) * FONT).sum()
}

/// The width of a character in the widest common fonts (DejaVu Sans, Verdana), in em.
fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' => 0.36,
        'f' | 't' | 'r' | 'I' | '(' | ')' | '/' | '-' => 0.47,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 1.05,
        '0'..='9' | 'a'..='z' => 0.66,
        'A'..='Z' => 0.8,
        '+' | '=' | '<' | '>' => 0.85,
        c if c.is_ascii() => 0.66,
        'µ' | '·' | '×' | '…' => 1.0,
        _ => 1.1,
    }
}

/// Truncates a text to this width.
pub(super) fn fitted(text: &str, most: f64) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut room = most - width("…");
    let fits = |c: &char| {
        room -= em(*c) * FONT;
        room >= 0.0
    };
    text.chars().take_while(fits).collect::<String>() + "…"
}

#[cfg(test)]
mod tests;
