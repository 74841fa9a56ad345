//! One frame of the view, as a function of the measured activity and the state of the view.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Widget;

use super::details::describe_server;
use super::figures::{show_bytes, show_count, show_latency, show_rate};
use super::sample::{MeasuredActivity, RefusalRate, RequestRates, ServerSample};
use super::state::{ServerRow, TopPage, TopState};
use crate::cli::printable;
use crate::cli::status::describe_age;
use crate::text::one_line;

/// A frame.
pub(super) struct TopScreen<'a> {
    /// The newest activity; `None` before the first.
    pub(super) measured: Option<&'a MeasuredActivity>,
    /// The state of the view.
    pub(super) state: &'a TopState,
    /// The reason that the gateway does not answer now.
    pub(super) fault: Option<&'a str>,
    /// Use of colours.
    pub(super) palette: TopPalette,
}

/// Use of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopPalette {
    /// States have colours.
    Colored,
    /// Bold and reversed text only.
    Plain,
}

/// A column of the table besides the name.
struct TableColumn {
    title: &'static str,
    width: usize,
    align: CellAlign,
    /// Columns with lower numbers are shown first if there is too little room.
    rank: usize,
    cell: fn(&ServerSample, &RequestRates) -> String,
}

/// Alignment of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellAlign {
    Left,
    Right,
}

impl TopScreen<'_> {
    /// Returns the frame as lines of text.
    pub(super) fn to_text(&self, width: u16) -> String {
        let rows = self.measured.map_or(0, |measured| measured.sample.servers.len());
        let height = u16::try_from(rows.saturating_add(TEXT_EXTRA_LINES)).unwrap_or(u16::MAX);
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        self.draw(&mut buffer, Chrome::Without);
        let lines = buffer.content.chunks(usize::from(width.max(1)));
        let lines =
            lines.map(|cells| cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>());
        let mut text: Vec<_> = lines.map(|line| line.trim_end().to_owned()).collect();
        while text.last().is_some_and(String::is_empty) {
            text.pop();
        }
        text.join("\n") + "\n"
    }

    fn draw(&self, buffer: &mut Buffer, chrome: Chrome) {
        let area = buffer.area;
        let mut page = PageWriter { buffer, area, next: area.top() };
        let width = usize::from(area.width);
        self.write_head(&mut page, width);
        match (self.state.page, self.measured) {
            (TopPage::Help, _) => page.write_all(&help_lines()),
            (TopPage::Details, Some(measured)) => self.write_details(&mut page, measured),
            (_, Some(measured)) => self.write_table(&mut page, measured, chrome),
            (_, None) => {}
        }
        if chrome == Chrome::Keys {
            page.write_last(&self.keys(), Style::new().add_modifier(Modifier::REVERSED));
        }
    }

    /// Writes the totals of the gateway, in as many lines as they need.
    fn write_head(&self, page: &mut PageWriter<'_>, width: usize) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        if let Some(measured) = self.measured {
            let first = flow(&title_parts(measured), width);
            for line in &first {
                page.write(line, bold);
            }
            for line in flow(&total_parts(measured), width) {
                page.write(&line, Style::new());
            }
            let refusals = flow(&refusal_parts(&measured.refusals), width);
            refusals.iter().take(MAX_REFUSAL_LINES).for_each(|line| page.write(line, Style::new()));
        }
        if let Some(fault) = self.fault {
            let fault = one_line(fault, MAX_FAULT_CHARS);
            let words: Vec<_> = fault.split_whitespace().map(str::to_owned).collect();
            let lines = flow_with(&words, width, " ");
            let style = self.alarm();
            lines.iter().take(MAX_FAULT_LINES).for_each(|line| page.write(line, style));
        }
        page.write("", Style::new());
    }

    fn write_table(&self, page: &mut PageWriter<'_>, measured: &MeasuredActivity, chrome: Chrome) {
        let width = usize::from(page.area.width);
        let (columns, name_width) = fit_columns(width);
        let mut head = fit("SERVER", name_width);
        for column in &columns {
            head.push_str(&column.fill(column.title));
        }
        page.write(&head, Style::new().add_modifier(Modifier::BOLD));
        let rows = self.state.rows(measured);
        if rows.is_empty() {
            let empty = if measured.sample.servers.is_empty() {
                "no servers are configured"
            } else {
                "no server matches the filter"
            };
            page.write(empty, Style::new());
        }
        let room = page.room().saturating_sub(usize::from(chrome == Chrome::Keys));
        let is_selected = |(server, _): &ServerRow<'_>| {
            self.state.selected.as_deref() == Some(server.name.as_str())
        };
        let selected = rows.iter().position(is_selected);
        let skipped = selected.map_or(0, |place| (place + 1).saturating_sub(room));
        for row in rows.into_iter().skip(skipped).take(room) {
            let (server, rates) = row;
            let mut text = fit(&printable(&server.name), name_width);
            for column in &columns {
                text.push_str(&column.fill(&(column.cell)(server, rates)));
            }
            let mut style = self.state_style(&server.state);
            if is_selected(&row) {
                style = style.add_modifier(Modifier::REVERSED);
            }
            page.write(&text, style);
        }
    }

    fn write_details(&self, page: &mut PageWriter<'_>, measured: &MeasuredActivity) {
        let width = usize::from(page.area.width);
        let name = self.state.selected.as_deref().unwrap_or_default();
        let found = measured.rows().find(|(server, _)| server.name == name);
        let lines = match found {
            Some((server, rates)) => describe_server(server, rates, measured.sample.now),
            None => vec![format!("{} is not configured any more", printable(name))],
        };
        for line in lines {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            for line in &flow_with(&words, width, " ") {
                page.write(line, Style::new());
            }
        }
    }

    /// Returns the line of keys.
    fn keys(&self) -> String {
        let state = self.state;
        match state.page {
            TopPage::Filter => format!("filter: {}_  enter done  esc clear", state.filter),
            TopPage::Details => "q quit  esc back  s sort".to_owned(),
            TopPage::Help => "q quit  esc back".to_owned(),
            TopPage::Servers => {
                let filter = if state.filter.is_empty() {
                    "filter  ↑↓ enter details".to_owned()
                } else {
                    format!("filter: {}", state.filter)
                };
                format!("q quit  ? help  s sort: {}  / {filter}", state.order.as_str())
            }
        }
    }

    fn state_style(&self, state: &str) -> Style {
        let color = match state {
            "ready" | "idle" => return Style::new(),
            "failed" => Color::Red,
            "backoff" | "login" => Color::Yellow,
            _ => Color::Cyan,
        };
        match self.palette {
            TopPalette::Colored => Style::new().fg(color),
            TopPalette::Plain => Style::new(),
        }
    }

    fn alarm(&self) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        match self.palette {
            TopPalette::Colored => bold.fg(Color::Red),
            TopPalette::Plain => bold,
        }
    }
}

impl TableColumn {
    /// Returns a column of numbers.
    const fn number(
        title: &'static str,
        width: usize,
        rank: usize,
        cell: fn(&ServerSample, &RequestRates) -> String,
    ) -> Self {
        Self { title, width, align: CellAlign::Right, rank, cell }
    }

    /// Returns a cell with the space before it.
    fn fill(&self, text: &str) -> String {
        let width = self.width;
        match self.align {
            CellAlign::Left => format!(" {}", fit(text, width)),
            CellAlign::Right => format!(" {text:>width$}"),
        }
    }
}

impl Widget for &TopScreen<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        if area == buffer.area {
            self.draw(buffer, Chrome::Keys);
        }
    }
}

/// Parts of a frame besides its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chrome {
    /// A line of keys.
    Keys,
    /// Nothing: the frame is printed.
    Without,
}

/// Writes lines from the top.
struct PageWriter<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    /// The row of the next line.
    next: u16,
}

impl PageWriter<'_> {
    fn write(&mut self, text: &str, style: Style) {
        if self.next >= self.area.bottom() {
            return;
        }
        let line = Line::styled(text, style);
        self.buffer.set_line(self.area.left(), self.next, &line, self.area.width);
        self.next += 1;
    }

    fn write_all(&mut self, lines: &[&str]) {
        for line in lines {
            self.write(line, Style::new());
        }
    }

    /// Writes the last line, over everything else.
    fn write_last(&mut self, text: &str, style: Style) {
        let Some(row) = self.area.bottom().checked_sub(1) else { return };
        let text = fit(text, usize::from(self.area.width));
        self.buffer.set_line(self.area.left(), row, &Line::styled(text, style), self.area.width);
    }

    /// Returns the number of free rows.
    fn room(&self) -> usize {
        usize::from(self.area.bottom().saturating_sub(self.next))
    }
}

fn title_parts(measured: &MeasuredActivity) -> Vec<String> {
    let sample = &measured.sample;
    let ready = sample.servers.iter().filter(|server| server.state == "ready").count();
    vec![
        format!("Trunkline {}", printable(&sample.version)),
        printable(&sample.state),
        format!("up {}", describe_age(sample.now.duration_since(sample.started_at))),
        format!("{ready} of {} servers ready", sample.servers.len()),
        show_clock(sample.now),
    ]
}

fn total_parts(measured: &MeasuredActivity) -> Vec<String> {
    let (sample, requests) = (&measured.sample, &measured.requests);
    let sum = |count: fn(&ServerSample) -> usize| sample.servers.iter().map(count).sum::<usize>();
    let tokens = sum(|server| server.tool_tokens.unwrap_or_default());
    let memory = sample.memory_bytes.map(|bytes| format!("memory {}", show_bytes(bytes)));
    let parts = [
        format!("calls {}/s", show_rate(requests.calls)),
        format!("p50 {}", show_latency(requests.median)),
        format!("p95 {}", show_latency(requests.slow)),
        format!("errors {}/s", show_rate(requests.failed)),
        format!("refused {}/s", show_rate(requests.refused)),
        format!("in flight {}", sum(|server| server.in_flight)),
        format!("queued {}", sum(|server| server.queued)),
        format!("sessions {}", sample.sessions),
        format!("streams {}", sample.streams),
        format!("connections {}", sample.connections),
        format!("waiting {}", sample.parked),
        format!("tokens {}", if tokens > 0 { show_count(tokens) } else { "-".to_owned() }),
    ];
    parts.into_iter().chain(memory).collect()
}

fn refusal_parts(refusals: &[RefusalRate]) -> Vec<String> {
    if refusals.is_empty() {
        return vec!["refused: none".to_owned()];
    }
    let part = |refusal: &RefusalRate| {
        let RefusalRate { reason, total, rate } = refusal;
        let total = show_count(usize::try_from(*total).unwrap_or(usize::MAX));
        match rate {
            Some(rate) if *rate > 0.0 => format!("{reason} {total} ({}/s)", show_rate(Some(*rate))),
            _ => format!("{reason} {total}"),
        }
    };
    std::iter::once("refused:".to_owned()).chain(refusals.iter().map(part)).collect()
}

fn show_tokens(server: &ServerSample) -> String {
    server.tool_tokens.map_or_else(|| "-".to_owned(), show_count)
}

/// Returns the time of day in UTC.
fn show_clock(now: Timestamp) -> String {
    now.strftime("%H:%M:%S UTC").to_string()
}

fn help_lines() -> [&'static str; 16] {
    [
        "q, ctrl-c   quit",
        "s           order: file, calls, latency, errors, flight, tokens",
        "/           filter by name or state; esc clears it",
        "up, down    select a server; home and end, page up and page down",
        "enter       details of the selected server",
        "?           this page; esc goes back",
        "",
        "CALLS/S     requests sent to the server in a second",
        "P50, P95    upper bound of the bucket that has half, and 95 %, of them",
        "ERR/S       requests that failed, or whose tool reported an error",
        "FLIGHT      calls in flight",
        "QUEUED      calls that wait for a slot",
        "TOKENS      tokens of its tools' definitions, by estimate",
        "-           no request in the last interval, or not counted",
        "",
        "Rates are those of the last interval. Totals count from the start.",
    ]
}

/// Returns the columns that fit beside a name, and the width of the name.
fn fit_columns(width: usize) -> (Vec<&'static TableColumn>, usize) {
    let mut shown = 0;
    let mut taken = MIN_NAME_WIDTH;
    for rank in 0..TABLE_COLUMNS.len() {
        let more = TABLE_COLUMNS.iter().find(|column| column.rank == rank);
        let more = more.map_or(0, |column| column.width + 1);
        if taken + more > width {
            break;
        }
        taken += more;
        shown = rank + 1;
    }
    let columns: Vec<_> = TABLE_COLUMNS.iter().filter(|column| column.rank < shown).collect();
    let others: usize = columns.iter().map(|column| column.width + 1).sum();
    (columns, width.saturating_sub(others).clamp(MIN_NAME_WIDTH, MAX_NAME_WIDTH))
}

/// Cuts or fills a text to a width.
fn fit(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return format!("{text}{}", " ".repeat(width - length));
    }
    let start: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{start}…")
}

/// Puts parts into lines, with two spaces between them.
fn flow(parts: &[String], width: usize) -> Vec<String> {
    flow_with(parts, width, "  ")
}

fn flow_with(parts: &[String], width: usize, between: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for part in parts {
        let length = line.chars().count() + between.len() + part.chars().count();
        if !line.is_empty() && length > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push_str(between);
        }
        line.push_str(part);
    }
    lines.push(line);
    lines
}

const TABLE_COLUMNS: [TableColumn; 8] = [
    TableColumn {
        title: "STATE",
        width: 10,
        align: CellAlign::Left,
        rank: 0,
        cell: |server, _| printable(&server.state),
    },
    TableColumn::number("CALLS/S", 7, 1, |_, rates| show_rate(rates.calls)),
    TableColumn::number("P50", 7, 5, |_, rates| show_latency(rates.median)),
    TableColumn::number("P95", 7, 2, |_, rates| show_latency(rates.slow)),
    TableColumn::number("ERR/S", 6, 3, |_, rates| show_rate(rates.failed)),
    TableColumn::number("FLIGHT", 6, 4, |server, _| show_count(server.in_flight)),
    TableColumn::number("QUEUED", 6, 6, |server, _| show_count(server.queued)),
    TableColumn::number("TOKENS", 6, 7, |server, _| show_tokens(server)),
];

/// Least width of a server's name.
const MIN_NAME_WIDTH: usize = 12;
/// Largest width of a server's name.
const MAX_NAME_WIDTH: usize = 48;
/// Limit of the lines of refusals.
const MAX_REFUSAL_LINES: usize = 2;
/// Limit of the characters of a fault.
const MAX_FAULT_CHARS: usize = 500;
/// Limit of the lines of a fault.
const MAX_FAULT_LINES: usize = 4;
/// Lines of a printed frame besides its servers.
const TEXT_EXTRA_LINES: usize = 40;

#[cfg(test)]
mod tests;
