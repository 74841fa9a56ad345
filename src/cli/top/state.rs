//! The state of the view: order, filter, selection and page, changed by keys.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sample::{MeasuredActivity, RequestRates, ServerSample};

/// State of the view.
#[derive(Debug, Default)]
pub(super) struct TopState {
    /// The order of servers.
    pub(super) order: ServerOrder,
    /// Shown are servers with this in their name or state.
    pub(super) filter: String,
    /// The page.
    pub(super) page: TopPage,
    /// The selected server.
    pub(super) selected: Option<String>,
}

/// Pages of the view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TopPage {
    /// The table of servers.
    #[default]
    Servers,
    /// The table, while the filter is typed.
    Filter,
    /// One server.
    Details,
    /// The keys.
    Help,
}

/// Orders of servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ServerOrder {
    /// That of the configuration file.
    #[default]
    File,
    /// The most calls first.
    Calls,
    /// The slowest first.
    Latency,
    /// The most errors first.
    Errors,
    /// The most calls in flight first.
    Flight,
    /// The most tokens first.
    Tokens,
}

/// Effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyEffect {
    /// The view goes on.
    Continue,
    /// The view ends.
    Quit,
}

/// A row of the table.
pub(super) type ServerRow<'a> = (&'a ServerSample, &'a RequestRates);

impl ServerOrder {
    fn next(self) -> Self {
        match self {
            Self::File => Self::Calls,
            Self::Calls => Self::Latency,
            Self::Latency => Self::Errors,
            Self::Errors => Self::Flight,
            Self::Flight => Self::Tokens,
            Self::Tokens => Self::File,
        }
    }

    /// Returns the name for people.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Calls => "calls",
            Self::Latency => "latency",
            Self::Errors => "errors",
            Self::Flight => "flight",
            Self::Tokens => "tokens",
        }
    }

    /// Returns the number that a row is ordered by.
    fn rank(self, row: ServerRow<'_>) -> f64 {
        let (server, rates) = row;
        let count = |count: usize| u32::try_from(count).map_or(f64::from(u32::MAX), f64::from);
        match self {
            Self::File => 0.0,
            Self::Calls => rates.calls.unwrap_or_default(),
            Self::Latency => rates.slow.map_or(-1.0, super::sample::LatencyBound::seconds),
            Self::Errors => rates.failed.unwrap_or_default(),
            Self::Flight => count(server.in_flight.saturating_add(server.queued)),
            Self::Tokens => count(server.tool_tokens.unwrap_or_default()),
        }
    }
}

impl TopState {
    /// Returns the shown servers in their order.
    pub(super) fn rows<'a>(&self, measured: &'a MeasuredActivity) -> Vec<ServerRow<'a>> {
        let filter = self.filter.to_lowercase();
        let is_shown = |(server, _): &ServerRow<'_>| {
            server.name.to_lowercase().contains(&filter) || server.state.contains(&filter)
        };
        let mut rows: Vec<_> = measured.rows().filter(is_shown).collect();
        // Stable: equal ones keep the order of the file.
        rows.sort_by(|one, other| self.order.rank(*other).total_cmp(&self.order.rank(*one)));
        rows
    }

    /// Changes the state by a key.
    pub(super) fn press(
        &mut self,
        key: KeyEvent,
        measured: Option<&MeasuredActivity>,
    ) -> KeyEffect {
        let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL)
            && matches!(key.code, KeyCode::Char('c' | 'd'));
        if is_interrupt {
            return KeyEffect::Quit;
        }
        match self.page {
            TopPage::Filter => self.press_in_filter(key.code),
            page => match key.code {
                KeyCode::Char('q') => return KeyEffect::Quit,
                KeyCode::Esc if page == TopPage::Servers && self.filter.is_empty() => {
                    return KeyEffect::Quit;
                }
                KeyCode::Esc if page == TopPage::Servers => self.filter.clear(),
                KeyCode::Esc => self.page = TopPage::Servers,
                KeyCode::Char('?' | 'h') | KeyCode::F(1) => {
                    self.page = toggle(page, TopPage::Help);
                }
                KeyCode::Char('s') => self.order = self.order.next(),
                KeyCode::Char('/' | 'f') => self.page = TopPage::Filter,
                KeyCode::Enter if self.selected.is_some() => {
                    self.page = toggle(page, TopPage::Details);
                }
                code => self.move_selection(code, measured),
            },
        }
        KeyEffect::Continue
    }

    fn press_in_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.page = TopPage::Servers,
            KeyCode::Esc => {
                self.filter.clear();
                self.page = TopPage::Servers;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.filter.chars().count() < MAX_FILTER_CHARS => {
                self.filter.push(letter);
            }
            _ => {}
        }
    }

    fn move_selection(&mut self, code: KeyCode, measured: Option<&MeasuredActivity>) {
        let Some(measured) = measured else { return };
        let rows = self.rows(measured);
        let place =
            rows.iter().position(|(server, _)| Some(&server.name) == self.selected.as_ref());
        let last = rows.len().saturating_sub(1);
        let wanted = match (code, place) {
            (KeyCode::Home | KeyCode::Char('g'), _)
            | (KeyCode::Down | KeyCode::Up | KeyCode::Char('j' | 'k'), None) => 0,
            (KeyCode::End | KeyCode::Char('G'), _) => last,
            (KeyCode::Down | KeyCode::Char('j'), Some(place)) => place + 1,
            (KeyCode::Up | KeyCode::Char('k'), Some(place)) => place.saturating_sub(1),
            (KeyCode::PageDown, place) => place.unwrap_or_default() + PAGE_ROWS,
            (KeyCode::PageUp, place) => place.unwrap_or_default().saturating_sub(PAGE_ROWS),
            _ => return,
        };
        self.selected = rows.get(wanted.min(last)).map(|(server, _)| server.name.clone());
    }
}

fn toggle(page: TopPage, other: TopPage) -> TopPage {
    if page == other { TopPage::Servers } else { other }
}

/// Limit of the characters of a filter.
const MAX_FILTER_CHARS: usize = 40;
/// Rows that a page key moves over.
const PAGE_ROWS: usize = 10;
