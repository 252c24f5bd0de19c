//! Marker shapes: lines can be told apart without colours.

use crate::experiment::MOST_CASES;

/// Corners of a shape around its middle, in parts of its radius.
type Corners = &'static [(f64, f64)];

const SQUARE: Corners = &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)];
const TRIANGLE: Corners = &[(0.0, -1.2), (1.15, 0.85), (-1.15, 0.85)];
const DIAMOND: Corners = &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)];
const DOWN: Corners = &[(0.0, 1.2), (1.15, -0.85), (-1.15, -0.85)];
const CROSS: Corners = &[
    (-0.4, -1.2),
    (0.4, -1.2),
    (0.4, -0.4),
    (1.2, -0.4),
    (1.2, 0.4),
    (0.4, 0.4),
    (0.4, 1.2),
    (-0.4, 1.2),
    (-0.4, 0.4),
    (-1.2, 0.4),
    (-1.2, -0.4),
    (-0.4, -0.4),
];
const HOURGLASS: Corners = &[(-1.1, -1.1), (1.1, -1.1), (-1.1, 1.1), (1.1, 1.1)];
const BOWTIE: Corners = &[(-1.2, -1.0), (-1.2, 1.0), (1.2, -1.0), (1.2, 1.0)];

/// The outline of the marker with this number.
pub(super) fn shape(number: usize, x: f64, y: f64, radius: f64) -> String {
    let corners = match number % MOST_CASES {
        0 => return circle(x, y, radius),
        1 => SQUARE,
        2 => TRIANGLE,
        3 => DIAMOND,
        4 => DOWN,
        5 => CROSS,
        6 => HOURGLASS,
        _ => BOWTIE,
    };
    let corner = |(dx, dy): &(f64, f64)| format!("{:.1} {:.1}", x + dx * radius, y + dy * radius);
    format!("M{}Z", corners.iter().map(corner).collect::<Vec<_>>().join("L"))
}

fn circle(x: f64, y: f64, radius: f64) -> String {
    let (left, across) = (x - radius, 2.0 * radius);
    format!(
        "M{left:.1} {y:.1}a{radius} {radius} 0 1 0 {across:.1} 0a{radius} {radius} 0 1 0 -{across:.1} 0Z"
    )
}
