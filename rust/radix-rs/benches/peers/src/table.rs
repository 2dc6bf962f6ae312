//! Times that are fair on a machine that others use too, and how they are printed.

use std::time::Instant;

/// Nanoseconds of each call, on average.
pub fn per_call_ns(count: usize, mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    for at in 0..count {
        call(at);
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// How many times longer theirs took: the median over rounds.
pub fn ratio(theirs: &[f64], ours: &[f64]) -> f64 {
    median(&theirs.iter().zip(ours).map(|(a, b)| a / b).collect::<Vec<_>>())
}

/// A line of the table and of the JSON that follows it.
pub struct Line {
    pub measure: String,
    pub leaves: usize,
    pub who: &'static str,
    pub value: f64,
    pub unit: &'static str,
    /// Theirs in relation to ours, or ours to what it is held against.
    pub ratio: Option<f64>,
    pub required: Option<(&'static str, f64)>,
}

impl Line {
    fn met(&self) -> Option<bool> {
        let (sign, limit) = self.required?;
        let ratio = self.ratio?;
        Some(if sign == ">=" { ratio >= limit } else { ratio <= limit })
    }

    pub fn print(&self) {
        let ratio = self.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x"));
        let asked = match (self.required, self.met()) {
            (Some((sign, limit)), Some(true)) => format!("{sign} {limit} met"),
            (Some((sign, limit)), _) => format!("{sign} {limit} MISSED"),
            _ => String::new(),
        };
        let Line { measure, leaves, who, value, unit, .. } = self;
        println!("{measure:<34} {leaves:>9} {who:<18} {value:>12.1} {unit:<6} {ratio:>9}  {asked}");
    }

    pub fn json(&self) -> String {
        let number = |value: Option<f64>| value.map_or("null".to_owned(), |value| format!("{value:.4}"));
        let met = self.met().map_or("null".to_owned(), |met| met.to_string());
        format!(
            r#"{{"measure": "{}", "leaves": {}, "who": "{}", "value": {:.3}, "unit": "{}", "ratio": {}, "met": {met}}}"#,
            self.measure,
            self.leaves,
            self.who,
            self.value,
            self.unit,
            number(self.ratio)
        )
    }
}
