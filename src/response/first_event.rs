//! Finds the end of the first event of a `text/event-stream`.

const BOM: &[u8] = b"\xEF\xBB\xBF";
const DATA: &[u8] = b"data";

/// Looks for the end of the first event, one byte after the other.
///
/// An event ends with a blank line after at least one `data` field. Lines end with CR, LF or both. A comment such as
/// `: ping` is not an event. See
/// <https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>.
#[derive(Debug, Default)]
pub(crate) struct FirstEvent {
    line: Line,
    /// The last byte was a CR, so an LF belongs to the same line end.
    after_cr: bool,
    has_data: bool,
    is_found: bool,
}

/// What is known of the current line.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// The first line, with this many bytes of a byte order mark so far.
    First(usize),
    /// This many bytes of the name `data` so far, and nothing else.
    Name(usize),
    Data,
    Other,
}

impl Default for Line {
    fn default() -> Self {
        Self::First(0)
    }
}

impl FirstEvent {
    /// Reads on, and returns whether the first event is complete.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if self.is_found {
                break;
            }
            self.read_byte(*byte);
        }
        self.is_found
    }

    fn read_byte(&mut self, byte: u8) {
        let is_second_half = std::mem::take(&mut self.after_cr) && byte == b'\n';
        if is_second_half {
            return;
        }
        if matches!(byte, b'\r' | b'\n') {
            self.after_cr = byte == b'\r';
            self.end_line();
        } else {
            self.line = self.line.with(byte);
        }
    }

    fn end_line(&mut self) {
        match self.line {
            Line::First(0 | 3) | Line::Name(0) => self.is_found = self.has_data,
            Line::Name(4) | Line::Data => self.has_data = true,
            Line::First(_) | Line::Name(_) | Line::Other => {}
        }
        self.line = Line::Name(0);
    }
}

impl Line {
    fn with(self, byte: u8) -> Self {
        match self {
            Self::First(known) if BOM.get(known) == Some(&byte) => Self::First(known + 1),
            Self::First(0 | 3) => Self::Name(0).with(byte),
            Self::Name(known) if DATA.get(known) == Some(&byte) => Self::Name(known + 1),
            Self::Name(4) if byte == b':' => Self::Data,
            Self::Data => Self::Data,
            Self::First(_) | Self::Name(_) | Self::Other => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::sample::select;

    use super::*;

    /// Returns after how many bytes the first event is complete, one byte at a time.
    fn end_of(stream: &[u8]) -> Option<usize> {
        let mut event = FirstEvent::default();
        let found = stream.iter().position(|byte| event.read(&[*byte]));
        found.map(|index| index + 1)
    }

    #[test]
    fn an_event_ends_with_the_blank_line_after_its_data() {
        for (stream, end) in [
            (&b""[..], None),
            (b"data: x", None),
            (b"data: x\n", None),
            (b"data: x\n\n", Some(9)),
            (b"data: x\r\r", Some(9)),
            // The CR ends the line. Whether an LF follows does not matter.
            (b"data: x\r\n\r\n", Some(10)),
            (b"data: x\r\n\n", Some(10)),
            (b"data: x\n\r", Some(9)),
            (b"data\n\n", Some(6)),
            (b"data:\n\n", Some(7)),
            (b"\xEF\xBB\xBFdata:\n\n", Some(10)),
            (b"\xEF\xBB\xBF\ndata:\n\n", Some(11)),
            (b"\xEF\xBBdata:\n\n", None),
            (b": ping\n\n: ping\n\ndata: x\n\n", Some(25)),
            (b"event: ping\n\ndata: x\n\n", Some(22)),
            (b"id: 1\ndata: x\nevent: y\n\n", Some(24)),
            (b"\n\n\n\r\r\r\n\r\n", None),
            (b"datum: x\n\ndat\n\ndata x\n\n data: x\n\n", None),
            (b"database\n\n", None),
        ] {
            assert_eq!(end_of(stream), end, "{}", stream.escape_ascii());
            // The same in two parts, at every place.
            for cut in 0..=stream.len() {
                let (first, second) = stream.split_at(cut);
                let mut event = FirstEvent::default();
                let is_found = event.read(first) || event.read(second);
                assert_eq!(
                    is_found,
                    end.is_some(),
                    "{} at {cut}",
                    stream.escape_ascii()
                );
            }
        }
    }

    /// The same by lines, as the specification has it.
    fn end_by_lines(stream: &[u8]) -> Option<usize> {
        let mut at = if stream.starts_with(BOM) { 3 } else { 0 };
        let mut has_data = false;
        loop {
            let length = stream[at..]
                .iter()
                .position(|byte| b"\r\n".contains(byte))?;
            let (line, end) = (&stream[at..at + length], at + length + 1);
            match line.split(|byte| *byte == b':').next() {
                _ if line.is_empty() && has_data => return Some(end),
                Some(b"data") => has_data = true,
                _ => {}
            }
            let is_pair = stream[end - 1] == b'\r' && stream.get(end) == Some(&b'\n');
            at = end + usize::from(is_pair);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_stream_ends_its_first_event_where_its_lines_say(
            parts in vec(select(vec![
                &b"data"[..], b"dat", b"a", b":", b" ", b"\n", b"\n", b"\r", b"\r\n", BOM, b"\xEF", b"\xBB",
                b"event: x", b"data: x", b": ping", b"retry: 7", b"\0", b"\x85",
            ]), 0..24),
        ) {
            let stream = parts.concat();
            proptest::prop_assert_eq!(end_of(&stream), end_by_lines(&stream));
        }
    }
}
