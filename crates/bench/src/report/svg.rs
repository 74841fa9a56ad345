//! Charts: scales, ticks, lines. The page's style sheet determines their looks.

use std::fmt::Write as _;

/// A chart of one or more curves.
pub(super) struct Chart {
    /// A description of the chart, for screen readers.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves.
    pub lines: Vec<ChartLine>,
}

/// An axis.
pub(super) struct Axis {
    /// The lowest value.
    pub low: f64,
    /// The highest value.
    pub high: f64,
    /// True for a logarithmic axis.
    pub log: bool,
    /// The positions and labels of the ticks.
    pub ticks: Vec<(f64, String)>,
}

/// One curve.
pub(super) struct ChartLine {
    /// The index of one of the page's colours.
    pub color: usize,
    /// True for the less important of two curves of one colour.
    pub faint: bool,
    /// The points of the curve.
    pub points: Vec<(f64, f64)>,
    /// Highlighted points, with their tooltips.
    pub marks: Vec<(f64, f64, String)>,
}

impl Axis {
    /// A logarithmic axis, with ticks at 1, 2 and 5 of each power of ten; it
    /// ends at ticks.
    pub(super) fn log(low: f64, high: f64, name: impl Fn(f64) -> String) -> Self {
        let (low, high) = (low.max(1e-3), high.max(low.max(1e-3) * 1.01));
        let from = low.log10().floor();
        let steps = |exponent: f64| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powf(exponent));
        let exponents = std::iter::successors(Some(from), |exponent| Some(exponent + 1.0));
        let all: Vec<f64> = exponents.take(30).flat_map(steps).collect();
        let low = all.iter().copied().rfind(|tick| *tick <= low).unwrap_or(low);
        let high = all.iter().copied().find(|tick| *tick >= high).unwrap_or(high);
        let within: Vec<f64> = all.into_iter().filter(|it| (low..=high).contains(it)).collect();
        // Over many powers of ten the ticks at 1 suffice.
        let wide = within.len() > 10;
        let is_one = |tick: f64| (tick.log10() - tick.log10().round()).abs() < 1e-6;
        let ticks = within.into_iter().filter(|tick| !wide || is_one(*tick));
        Self { low, high, log: true, ticks: ticks.map(|tick| (tick, name(tick))).collect() }
    }

    /// A linear axis from zero, with about five ticks; it ends at a tick.
    pub(super) fn linear(high: f64, name: impl Fn(f64) -> String) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let rough = high / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let mut ticks = vec![(0.0, name(0.0))];
        let mut tick = 0.0;
        while tick < high * 0.999 && ticks.len() < 20 {
            tick += step;
            ticks.push((tick, name(tick)));
        }
        Self { low: 0.0, high: tick, log: false, ticks }
    }

    /// The position of a value, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
    }
}

impl Chart {
    /// Draws the chart as SVG.
    pub(super) fn draw(&self) -> String {
        let mut out = String::new();
        let title = escape(&self.title);
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {CHART_WIDTH} {CHART_HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
        );
        self.grid(&mut out);
        for line in &self.lines {
            self.line(&mut out, line);
        }
        out.push_str("</svg>\n");
        out
    }

    fn grid(&self, out: &mut String) {
        let (left, right, bottom) = (self.left(0.0), self.left(1.0), self.top(0.0));
        for (value, name) in &self.y.ticks {
            let y = self.top(self.y.place(*value));
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>\
                 <text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                left - 8.0,
                y + 4.0,
                escape(name)
            );
        }
        for (value, name) in &self.x.ticks {
            let x = self.left(self.x.place(*value));
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{x:.1} {bottom:.1}v5\"/>\
                 <text class=\"x\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 20.0,
                escape(name)
            );
        }
        let _ = write!(out, "<path class=\"axis\" d=\"M{left:.1} {bottom:.1}H{right:.1}\"/>");
    }

    fn line(&self, out: &mut String, line: &ChartLine) {
        let at = |x: f64, y: f64| (self.left(self.x.place(x)), self.top(self.y.place(y)));
        let mut path = String::new();
        for (x, y) in &line.points {
            let (x, y) = at(*x, *y);
            let step = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{step}{x:.1} {y:.1}");
        }
        let faint = if line.faint { " faint" } else { "" };
        if !path.is_empty() {
            let _ = write!(out, "<path class=\"line c{}{faint}\" d=\"{path}\"/>", line.color);
        }
        for (x, y, says) in &line.marks {
            let (x, y) = at(*x, *y);
            let _ = write!(
                out,
                "<circle class=\"mark c{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
                line.color,
                escape(says)
            );
        }
    }

    #[expect(clippy::unused_self, reason = "reads as its sibling does")]
    fn left(&self, part: f64) -> f64 {
        LEFT_MARGIN + part * (CHART_WIDTH - LEFT_MARGIN - RIGHT_MARGIN)
    }

    #[expect(clippy::unused_self, reason = "reads as its sibling does")]
    fn top(&self, part: f64) -> f64 {
        CHART_HEIGHT - BOTTOM_MARGIN - part * (CHART_HEIGHT - BOTTOM_MARGIN - TOP_MARGIN)
    }
}

/// Escapes a text for HTML, including attribute values.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

const CHART_WIDTH: f64 = 860.0;
const CHART_HEIGHT: f64 = 300.0;
const LEFT_MARGIN: f64 = 72.0;
const RIGHT_MARGIN: f64 = 16.0;
const TOP_MARGIN: f64 = 12.0;
const BOTTOM_MARGIN: f64 = 34.0;
