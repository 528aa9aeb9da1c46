//! Encodes a rendered chat. Special tokens written by the template become special tokens. The same
//! spelling in the ranges `plain`, which a person wrote, is ordinary text.
//!
//! The text is still split and encoded as a whole, like in the library, because tokens may cross
//! the borders of the ranges.

use tokenizers::pipeline::{
    normalize_all, Model, PipelinePatternMatcher, PipelineToken, PipelineTokenizer, PreTokenizer,
    PreTokenizerScratch, Segment, SpecialSegmentIterator,
};
use tokenizers::vocab::bucket_added_vocabulary::AddedVocabulary;

use crate::abi::Range;
use crate::error::{Code, Error, Result};

pub fn check_ranges(text: &str, plain: &[Range]) -> Result<()> {
    let mut last_end = 0;
    for range in plain {
        let inside = range.begin <= range.end && range.end <= text.len();
        if !inside
            || range.begin < last_end
            || !text.is_char_boundary(range.begin)
            || !text.is_char_boundary(range.end)
        {
            return Err(Error::new(
                Code::InvalidArgument,
                format!(
                    "plain range {}..{} is outside the text, splits a character or overlaps \
                     the one before",
                    range.begin, range.end
                ),
            ));
        }
        last_end = range.end;
    }
    Ok(())
}

fn overlaps(plain: &[Range], begin: usize, end: usize) -> bool {
    let next = plain.partition_point(|range| range.end <= begin);
    plain
        .get(next)
        .is_some_and(|r| r.begin < end && r.begin < r.end)
}

/// The library's added tokens, without the special ones that overlap a plain range.
struct Matcher<'a> {
    added: &'a AddedVocabulary,
    special: &'a dyn Fn(u32) -> bool,
    plain: &'a [Range],
    /// Position of the searched text in the text that `plain` refers to.
    offset: usize,
}

impl PipelinePatternMatcher for Matcher<'_> {
    fn extract_next(
        &self,
        text: &[u8],
        mut from: usize,
        normalized: bool,
        special_as_text: bool,
    ) -> Option<((usize, usize), u32)> {
        while from < text.len() {
            let ((begin, end), id) =
                self.added
                    .extract_next(text, from, normalized, special_as_text)?;
            if !overlaps(self.plain, self.offset + begin, self.offset + end) || !(self.special)(id)
            {
                return Some(((begin, end), id));
            }
            let (spelled, n_first) = self.spelling(text, begin, end, id);
            if !overlaps(self.plain, self.offset + spelled, self.offset + end) {
                let begin = self.end_of_plain(self.offset + spelled) - self.offset;
                return Some(((begin, end), id));
            }
            // A token of the template may begin inside the hidden token.
            from = spelled + n_first;
        }
        None
    }
}

impl Matcher<'_> {
    /// Returns where the spelling of a match begins, after the blanks that it also consumes
    /// (lstrip), and the size of its first character in bytes.
    fn spelling(&self, text: &[u8], begin: usize, end: usize, id: u32) -> (usize, usize) {
        let n_blank = |s: &str| s.len() - s.trim_start().len();
        let spelling = self.added.simple_id_to_token(id).unwrap_or_default();
        let matched = std::str::from_utf8(&text[begin..end]).unwrap_or_default();
        let n_taken = n_blank(matched).saturating_sub(n_blank(&spelling));
        let first = matched[n_taken..].chars().next();
        (begin + n_taken, first.map_or(1, char::len_utf8))
    }

    /// End of the last non-empty plain range that ends at or before `at`, or 0.
    fn end_of_plain(&self, at: usize) -> usize {
        let n_before = self.plain.partition_point(|range| range.end <= at);
        let last = self.plain[..n_before]
            .iter()
            .rev()
            .find(|r| r.begin < r.end);
        last.map_or(0, |range| range.end)
    }
}

fn is_special(pipeline: &PipelineTokenizer, id: u32) -> bool {
    pipeline.decode_tokens(&[id], true).is_empty()
}

/// Whether `plain` covers part of a special token's spelling.
pub fn hides_special(pipeline: &PipelineTokenizer, text: &str, plain: &[Range]) -> bool {
    let added = pipeline.get_added_vocabulary();
    let mut from = 0;
    while let Some(((begin, end), id)) = added.extract_next(text.as_bytes(), from, false, false) {
        if overlaps(plain, begin, end) && is_special(pipeline, id) {
            return true;
        }
        from = end;
    }
    false
}

/// Special tokens that need extra care in `encode`.
pub struct Specials<'a> {
    /// Spellings of the tokens that are matched after normalization.
    pub normalized: &'a [(String, u32)],
    /// Tokens that the model itself produces from their spelling, as Unigram does.
    pub of_model: &'a [(String, u32)],
}

struct Encoder<'a> {
    pipeline: &'a PipelineTokenizer,
    added: &'a AddedVocabulary,
    scratch: <tokenizers::pipeline::PipelineModel as Model>::Scratch,
    split: PreTokenizerScratch,
    specials: Specials<'a>,
    out: Vec<PipelineToken>,
}

pub fn encode(
    pipeline: &PipelineTokenizer,
    specials: Specials<'_>,
    text: &str,
    plain: &[Range],
) -> Result<Vec<u32>> {
    let mut encoder = Encoder {
        pipeline,
        added: pipeline.get_added_vocabulary(),
        scratch: pipeline.get_model().init_scratch(),
        split: PreTokenizerScratch::default(),
        specials,
        out: Vec::with_capacity(text.len() / 3 + 8),
    };
    encoder
        .run(text, plain)
        .map_err(|e| Error::new(Code::InvalidArgument, format!("cannot encode: {e}")))?;
    Ok(PipelineToken::cast_slice(&encoder.out).to_vec())
}

/// A special token that is matched after normalization. `at` is the next place where the template
/// wrote it, by its spelling before normalization; `None`: no further place.
struct Spelled<'a> {
    spelling: &'a str,
    id: u32,
    at: Option<usize>,
}

impl Spelled<'_> {
    fn end(&self, at: usize) -> usize {
        at + self.spelling.len()
    }

    fn seek(&mut self, chunk: &str, mut from: usize, offset: usize, plain: &[Range]) {
        self.at = None;
        while let Some(found) = chunk[from..].find(self.spelling) {
            let at = from + found;
            if !overlaps(plain, offset + at, offset + self.end(at)) {
                self.at = Some(at);
                return;
            }
            // A token of the template may begin inside the hidden token.
            from = at + self.spelling.chars().next().map_or(1, char::len_utf8);
        }
    }
}

impl Encoder<'_> {
    /// Runs the library's two passes: first tokens matched in the original text, then tokens
    /// matched after normalization.
    fn run(&mut self, text: &str, plain: &[Range]) -> tokenizers::Result<()> {
        let pipeline = self.pipeline;
        let special = |id| is_special(pipeline, id);
        let matcher = Matcher {
            added: self.added,
            special: &special,
            plain,
            offset: 0,
        };
        for segment in SpecialSegmentIterator::new(text, &matcher, false, false) {
            match segment {
                Segment::SpecialToken(id) => self.out.push(PipelineToken::from(id)),
                Segment::Text { text, input_offset } => {
                    self.normalized(text, input_offset, plain, &special)?;
                }
            }
        }
        Ok(())
    }

    fn normalized(
        &mut self,
        chunk: &str,
        offset: usize,
        plain: &[Range],
        special: &dyn Fn(u32) -> bool,
    ) -> tokenizers::Result<()> {
        let normalized = normalize_all(self.pipeline.get_normalizers(), chunk, offset)?;
        // Positions are known only if normalization left the text unchanged.
        let unchanged = normalized == chunk;
        if !unchanged && overlaps(plain, offset, offset + chunk.len()) {
            return self.cut_at_special(chunk, offset, plain);
        }
        let matcher = Matcher {
            added: self.added,
            special,
            plain: if unchanged { plain } else { &[] },
            offset,
        };
        for segment in SpecialSegmentIterator::new(&normalized, &matcher, true, false) {
            match segment {
                Segment::SpecialToken(id) => self.out.push(PipelineToken::from(id)),
                Segment::Text { text, .. } => self.model(text)?,
            }
        }
        Ok(())
    }

    /// Finds the template's special tokens by their spelling before normalization. The text between
    /// them is normalized and encoded without special tokens.
    fn cut_at_special(
        &mut self,
        chunk: &str,
        offset: usize,
        plain: &[Range],
    ) -> tokenizers::Result<()> {
        let mut specials = Vec::new();
        for (spelling, id) in self.specials.normalized {
            let mut special = Spelled {
                spelling,
                id: *id,
                at: None,
            };
            special.seek(chunk, 0, offset, plain);
            specials.push(special);
        }
        let mut begin = 0;
        loop {
            // Positions of the other tokens stay valid. This keeps the search linear even if one
            // token occurs often.
            for special in specials
                .iter_mut()
                .filter(|s| s.at.is_some_and(|at| at < begin))
            {
                special.seek(chunk, begin, offset, plain);
            }
            let next = specials
                .iter()
                .filter_map(|special| Some((special.at?, special)))
                .min_by_key(|&(at, special)| (at, std::cmp::Reverse(special.end(at))))
                .map(|(at, special)| (at, special.end(at), special.id));
            let text = &chunk[begin..next.map_or(chunk.len(), |(at, _, _)| at)];
            let normalized = normalize_all(self.pipeline.get_normalizers(), text, offset + begin)?;
            for segment in SpecialSegmentIterator::new(&normalized, self.added, true, true) {
                match segment {
                    Segment::SpecialToken(id) => self.out.push(PipelineToken::from(id)),
                    Segment::Text { text, .. } => self.model(text)?,
                }
            }
            let Some((_, end, id)) = next else {
                return Ok(());
            };
            self.out.push(PipelineToken::from(id));
            begin = end;
        }
    }

    /// Encodes text without special tokens. If the model produces one from its spelling anyway, the
    /// text is cut after the spelling's first character to prevent that.
    fn model(&mut self, text: &str) -> tokenizers::Result<()> {
        let begin = self.out.len();
        self.model_words(text)?;
        let made = |(_, id): &&(String, u32)| self.out[begin..].iter().any(|token| token == id);
        let made: Vec<&str> = self
            .specials
            .of_model
            .iter()
            .filter(made)
            .map(|(spelling, _)| spelling.as_str())
            .collect();
        if made.is_empty() {
            return Ok(());
        }
        let mut cuts: Vec<usize> = made
            .iter()
            .flat_map(|spelling| {
                let n_first = spelling.chars().next().map_or(0, char::len_utf8);
                text.match_indices(spelling)
                    .map(move |(at, _)| at + n_first)
            })
            .filter(|&cut| cut < text.len())
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        if cuts.is_empty() {
            return Err(format!("the text spells the special token {}", made[0]).into());
        }
        self.out.truncate(begin);
        let mut from = 0;
        for cut in cuts.into_iter().chain([text.len()]) {
            self.model(&text[from..cut])?;
            from = cut;
        }
        Ok(())
    }

    fn model_words(&mut self, text: &str) -> tokenizers::Result<()> {
        if u32::try_from(text.len()).is_err() {
            return Err("a text of more than 4 GB".into());
        }
        let mut spans = Vec::new();
        self.pipeline
            .get_pre_tokenizer()
            .pre_tokenize(text, &mut self.split, &mut spans)?;
        self.pipeline
            .get_model()
            .tokenize_spans(text, &spans, &mut self.scratch, &mut self.out)
    }
}
