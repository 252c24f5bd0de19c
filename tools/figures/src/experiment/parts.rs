//! The tables of an experiment file.

use std::ops::Deref;

use base::cli::sweep::Sweep;
use base::cli::values::byte_count;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::unit;

/// The scale of an axis.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    #[default]
    Linear,
    Log2,
    Log10,
}

/// The texts of an axis.
pub(crate) trait Axis {
    fn label(&self) -> &str;
    fn unit(&self) -> &str;

    /// The label with its unit.
    fn heading(&self) -> String {
        match self.unit() {
            "" => self.label().to_owned(),
            unit => format!("{} ({unit})", self.label()),
        }
    }
}

/// The x axis: the value that varies.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct X {
    pub(crate) label: String,
    /// `B` for bytes, which charts show as KiB and MiB; empty for counts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) unit: String,
    pub(crate) scale: Scale,
    pub(crate) values: Values,
    /// Fewer values, for a quick run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quick: Option<Values>,
    /// The number of threads of a run, if it depends on x.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<Threads>,
}

impl Axis for X {
    fn label(&self) -> &str {
        &self.label
    }

    /// Without the unit: each tick label has one.
    fn heading(&self) -> String {
        self.label.clone()
    }

    fn unit(&self) -> &str {
        &self.unit
    }
}

/// Number of threads of a run: `per_x * x + fixed`.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Threads {
    pub(crate) per_x: u32,
    #[serde(default)]
    pub(crate) fixed: u32,
}

impl Threads {
    /// The largest x with a core for each thread: any number from 0.
    pub(crate) fn max_x(self, cores: u32) -> f64 {
        let cores = f64::from(cores.saturating_sub(self.fixed));
        cores / f64::from(self.per_x.max(1))
    }
}

/// A y axis: a key of the result.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Y {
    /// The key of the result that `--json` prints.
    pub(crate) key: String,
    pub(crate) label: String,
    pub(crate) unit: String,
    #[serde(default)]
    pub(crate) scale: Scale,
}

impl Y {
    /// The divisor that converts a value of the key to the unit of the axis.
    pub(crate) fn divisor(&self) -> f64 {
        unit::divisor(&self.key, &self.unit).unwrap_or(1.0)
    }
}

impl Axis for Y {
    fn label(&self) -> &str {
        &self.label
    }

    fn unit(&self) -> &str {
        &self.unit
    }
}

/// A line of the figure: the command to run for each x.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct FigureCase {
    pub(crate) label: String,
    pub(crate) run: Template,
    /// The largest x of this case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_x: Option<FlagNumber>,
}

impl FigureCase {
    /// Reports whether the case includes this x.
    pub(crate) fn covers(&self, x: u64) -> bool {
        self.max_x.is_none_or(|max| x <= max.0)
    }
}

/// Published values.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    pub(crate) label: String,
    /// Publication, section and figure.
    pub(crate) source: String,
    /// The key of the axis; may be left out where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) y: Option<String>,
    /// Pairs of x and y, in the units of the axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) points: Vec<(f64, f64)>,
    /// A y for all x, or for an x that the paper does not state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<f64>,
}

/// The names of models.
pub(crate) const MODELS: [&str; 1] = ["connectx5"];

/// A curve that a model predicts.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelCurve {
    pub(crate) label: String,
    /// The name of the model (`connectx5`), which computes its points.
    pub(crate) model: String,
    /// The case that it predicts, if it predicts one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) case: Option<String>,
    /// The key of the axis; may be left out where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) y: Option<String>,
}

/// An expectation about the results: one of the shapes.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    /// The sentence of the source that it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<String>,
    /// A sentence of the source that is not so here: the expectation is what holds in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_reproduced: Option<String>,
    /// The beginning of a device's name (`soft0@card`), or a whole one (`=soft0`), if it is not
    /// about all devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) on: Option<String>,
    /// The key that it compares; without one, that of the first axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) y: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<PointValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<Ratio>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) monotone: Option<Monotone>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plateau: Option<Plateau>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peak: Option<Peak>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) linear: Option<Linear>,
}

/// A shape that results are expected to have.
#[derive(Debug)]
pub(crate) enum ExpectedShape<'a> {
    Value(&'a PointValue),
    Ratio(&'a Ratio),
    Monotone(&'a Monotone),
    Plateau(&'a Plateau),
    Peak(&'a Peak),
    Linear(&'a Linear),
}

impl ExpectedShape<'_> {
    /// Name in a file.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ExpectedShape::Value(_) => "value",
            ExpectedShape::Ratio(_) => "ratio",
            ExpectedShape::Monotone(_) => "monotone",
            ExpectedShape::Plateau(_) => "plateau",
            ExpectedShape::Peak(_) => "peak",
            ExpectedShape::Linear(_) => "linear",
        }
    }
}

impl Expect {
    /// Its shapes; exactly one after `check_expect`.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = ExpectedShape<'_>> {
        let Expect { value, ratio, monotone, plateau, peak, linear, .. } = self;
        let shapes = [
            value.as_ref().map(ExpectedShape::Value),
            ratio.as_ref().map(ExpectedShape::Ratio),
            monotone.as_ref().map(ExpectedShape::Monotone),
            plateau.as_ref().map(ExpectedShape::Plateau),
            peak.as_ref().map(ExpectedShape::Peak),
            linear.as_ref().map(ExpectedShape::Linear),
        ];
        shapes.into_iter().flatten()
    }
}

/// A point itself, or each point of a case, in the unit of the axis.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct PointValue {
    pub(crate) case: String,
    /// The x of the point; without it, each point of the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) x: Option<FlagNumber>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_least: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_most: Option<f64>,
}

/// One point divided by another one: of two cases at one x, or of one case at two.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ratio {
    pub(crate) of: String,
    pub(crate) to: String,
    pub(crate) x: FlagNumber,
    /// The x of the divisor, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to_x: Option<FlagNumber>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_least: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_most: Option<f64>,
    /// The paper's value. A ratio that holds and is not within a factor of two of it is no tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) paper: Option<f64>,
}

/// A case rises or falls. Steps back are allowed up to the tolerance.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Monotone {
    pub(crate) case: String,
    pub(crate) direction: MonotoneDirection,
    #[serde(default)]
    pub(crate) tolerance_percent: f64,
}

/// The direction of a monotone case.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MonotoneDirection {
    Rising,
    Falling,
}

/// Points of a case that lie close together: the last ones, or those from one x to another.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plateau {
    pub(crate) case: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<usize>,
    /// Lowest x; without it, the first of the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<FlagNumber>,
    /// Highest x; without it, the last of the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<FlagNumber>,
    /// The largest difference between highest and lowest, in percent of the lowest.
    pub(crate) within_percent: f64,
}

/// A case that is highest in a range of x, and lower at its end.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peak {
    pub(crate) case: String,
    pub(crate) from: FlagNumber,
    pub(crate) to: FlagNumber,
    /// Largest ratio of the last point to the highest, 0 to 1.
    pub(crate) falls_to: f64,
}

/// A case that grows as x does: its points lie near the line through 0 and the first one.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Linear {
    pub(crate) case: String,
    /// Up to this x.
    pub(crate) to: FlagNumber,
    /// Largest distance of a point from the line, in percent of the line's value.
    pub(crate) within_percent: f64,
}

/// A list of numbers in rising order, in the syntax of flags.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Values {
    text: String,
    values: Sweep,
}

impl Deref for Values {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.values
    }
}

impl TryFrom<String> for Values {
    type Error = String;

    fn try_from(text: String) -> Result<Values, String> {
        let values = Sweep::parse(&text, byte_count).map_err(|e| e.to_string())?;
        match values.windows(2).find(|pair| pair[0] >= pair[1]) {
            Some(pair) => Err(format!("{} follows {}: values must rise", pair[1], pair[0])),
            None => Ok(Values { text, values }),
        }
    }
}

impl From<Values> for String {
    fn from(values: Values) -> String {
        values.text
    }
}

/// A number in the syntax of flags: `64`, or `"64k"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlagNumber(pub(crate) u64);

impl Serialize for FlagNumber {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for FlagNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FlagNumber, D::Error> {
        struct NumberVisitor;
        impl Visitor<'_> for NumberVisitor {
            type Value = FlagNumber;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number from 0, as 4096 or \"4k\"")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<FlagNumber, E> {
                Ok(FlagNumber(number))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<FlagNumber, E> {
                let whole = u64::try_from(number).map(FlagNumber);
                whole.map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<FlagNumber, E> {
                let number = byte_count(text).map(|number| FlagNumber(number.into()));
                number.map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        from.deserialize_any(NumberVisitor)
    }
}

/// Subcommands that an experiment can run.
const COMMANDS: [&str; 3] = ["bench", "pingpong", "multicast"];

/// Flags that the run of an experiment sets.
const RESERVED: [&str; 14] = [
    "--device",
    "--json",
    "--cpu",
    "--gid-index",
    "--verbose",
    "-v",
    "--csv",
    "--rounds",
    "--seconds",
    "--messages",
    "--iterations",
    "--listen",
    "--connect",
    "--input",
];

/// A command line with `{x}` in it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Template(String);

impl Template {
    /// The text of the file.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The words of the command line with this x.
    pub(crate) fn words(&self, x: u64) -> Vec<String> {
        let word = |word: &str| substitute(word, x).unwrap_or_else(|_| word.into());
        self.0.split_whitespace().map(word).collect()
    }
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(text: String) -> Result<Template, String> {
        let mut words = text.split_whitespace();
        let command = words.next().unwrap_or_default();
        if !COMMANDS.contains(&command) {
            return Err(format!("'{command}': a run begins with {}", COMMANDS.join(", ")));
        }
        let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
        if let Some(flag) = words.clone().map(name).find(|flag| RESERVED.contains(&&**flag)) {
            return Err(format!("{flag} is set for all runs, not by an experiment: leave it out"));
        }
        for word in words {
            substitute(word, 1)?;
        }
        match text.contains("{x") {
            true => Ok(Template(text)),
            false => Err("a run must contain {x}, or a multiple as {x*20}".into()),
        }
    }
}

impl From<Template> for String {
    fn from(template: Template) -> String {
        template.0
    }
}

/// Replaces `{x}` and `{x*N}` in a word.
fn substitute(word: &str, x: u64) -> Result<String, String> {
    let mut done = String::new();
    let mut rest = word;
    while let Some((before, behind)) = rest.split_once('{') {
        let (inside, after) = behind.split_once('}').ok_or("a '{' needs a '}'")?;
        let factor = match inside.strip_prefix('x') {
            Some("") => Some(1),
            Some(times) => times.strip_prefix('*').and_then(|n| n.parse::<u64>().ok()),
            None => None,
        };
        let value = factor.ok_or_else(|| format!("{{{inside}}}: there are {{x}} and {{x*20}}"))?;
        let value = value.checked_mul(x).ok_or_else(|| format!("{{{inside}}} is too large"))?;
        done += before;
        done += &value.to_string();
        rest = after;
    }
    Ok(done + rest)
}
