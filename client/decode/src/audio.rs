//! Sounds: WAV and FLAC to rows of channels x frames, one `f32` each, as torchaudio gives them.
//!
//! Integers of n bits become floats by a division by 2^(n-1), so full scale is [-1, 1). Floats are
//! taken as they are. All values equal those of soundfile. Rows longer than their sound end in
//! zeros.
//!
//! WAV data is read in place. FLAC is decoded frame by frame from the start to the row's last
//! one. Damage behind that frame is found only if lengths show it.
//!
//! Thread rule: a `Scratch` belongs to one thread. Non-goals: resampling, and WAV of
//! other codecs.

mod flac;
mod wav;

use super::draw::Draw;
use super::error::DecodeError;
use super::scratch::Scratch;

/// Frames of a sound: 93 minutes at 48 kHz. A FLAC of a few bytes can promise silence for days,
/// which a random start would decode.
pub const FRAMES_MAX: u64 = 1 << 28;

/// Values of a row: 1 GiB.
const VALUES_MAX: u64 = 1 << 28;

/// What a sound becomes: rows of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Audio {
    frames: u32,
    channels: Channels,
    start: Start,
    sample_rate: Option<u32>,
}

/// The channels of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channels {
    /// One channel: the mean of those of the sound.
    Mono,
    /// As many as the sound must have.
    Exact(u16),
}

/// Where the row begins in a sound that is longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Start {
    /// At the sound's begin.
    #[default]
    Begin,
    /// At a frame that the draw chooses evenly.
    Random,
}

impl Audio {
    /// Rows of sounds of any sample rate.
    ///
    /// # Errors
    /// [`DecodeError::Options`] for a row without values or with more than 2^28.
    pub fn new(frames: u32, channels: Channels, start: Start) -> Result<Self, DecodeError> {
        let made = Self { frames, channels, start, sample_rate: None };
        let values = u64::from(frames) * made.shape()[0] as u64;
        if !(1..=VALUES_MAX).contains(&values) {
            let why = format!("a row of {values} values: it has 1 to {VALUES_MAX}");
            return Err(DecodeError::Options(why));
        }
        Ok(made)
    }

    /// Makes sounds of another sample rate an error.
    #[must_use]
    pub fn sample_rate(self, hertz: u32) -> Self {
        Self { sample_rate: Some(hertz), ..self }
    }

    /// Channels and frames of a row.
    pub fn shape(&self) -> [usize; 2] {
        let channels = match self.channels {
            Channels::Mono => 1,
            Channels::Exact(channels) => channels,
        };
        [usize::from(channels), self.frames as usize]
    }

    /// Values of a row: the product of its shape.
    pub fn values(&self) -> usize {
        self.shape().iter().product()
    }

    /// Decodes one sound into one row, and returns the frames that come from the sound. Zeros
    /// follow them.
    ///
    /// # Errors
    /// [`DecodeError`] if `out` has another length than [`values`](Self::values), and for sounds
    /// that are damaged, cut off, of another format or of other channels or rate. Then `out` may
    /// hold anything.
    pub fn decode_into(
        &self,
        encoded: &[u8],
        draw: Draw,
        out: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<usize, DecodeError> {
        if out.len() != self.values() {
            return Err(DecodeError::Slice { found: out.len(), wanted: self.values() });
        }
        let encoded = flac::behind_tag(encoded);
        match encoded {
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..]
            | [b'R', b'F', b'6', b'4', _, _, _, _, b'W', b'A', b'V', b'E', ..] => {
                wav::decode(self, encoded, draw, out)
            }
            [b'f', b'L', b'a', b'C', ..] => {
                flac::decode(self, encoded, draw, out, &mut scratch.block)
            }
            _ => Err(DecodeError::format("WAV nor FLAC", encoded)),
        }
    }

    fn check(&self, channels: u32, sample_rate: u32) -> Result<(), DecodeError> {
        if let Channels::Exact(wanted) = self.channels
            && u32::from(wanted) != channels
        {
            let (found, wanted) = (channels, u32::from(wanted));
            let hint = "ask for that number, or for the mean of all";
            return Err(DecodeError::Sound { found, wanted, unit: "channels", hint });
        }
        if let Some(wanted) = self.sample_rate.filter(|&wanted| wanted != sample_rate) {
            let hint = "resample when the dataset is written, or ask for no rate";
            return Err(DecodeError::Sound { found: sample_rate, wanted, unit: "Hz", hint });
        }
        Ok(())
    }

    /// The frames that a row shows of a sound of `total` frames.
    fn cut(&self, format: &'static str, total: u64, draw: Draw) -> Result<Cut, DecodeError> {
        if total > FRAMES_MAX {
            let (unit, limit) = ("frames", FRAMES_MAX);
            return Err(DecodeError::TooLarge { format, found: total, unit, limit });
        }
        let total = u32::try_from(total).expect("at most 2^28");
        let spare = total.saturating_sub(self.frames);
        let first = match self.start {
            Start::Begin => 0,
            Start::Random => draw.numbers().at_most(spare),
        };
        Ok(Cut { first: first as usize, frames: total.min(self.frames) as usize })
    }

    /// Writes `count` frames of the sound from frame `at` of the row on. `value` gives the value of
    /// a frame, counted from `at`, and a channel.
    fn write(
        &self,
        out: &mut [f32],
        at: usize,
        count: usize,
        channels: usize,
        value: impl Fn(usize, usize) -> f32,
    ) {
        match self.channels {
            Channels::Mono => {
                for (frame, out) in out[at..at + count].iter_mut().enumerate() {
                    let sum: f32 = (0..channels).map(|channel| value(frame, channel)).sum();
                    *out = sum / channels as f32;
                }
            }
            Channels::Exact(_) => {
                for (channel, out) in out.chunks_exact_mut(self.frames as usize).enumerate() {
                    let out = out[at..at + count].iter_mut().enumerate();
                    out.for_each(|(frame, out)| *out = value(frame, channel));
                }
            }
        }
    }

    /// Fills the frames of the row behind the sound with zeros.
    fn pad(&self, out: &mut [f32], frames: usize) {
        for channel in out.chunks_exact_mut(self.frames as usize) {
            channel[frames..].fill(0.0);
        }
    }
}

/// The frames of a sound that a row shows.
struct Cut {
    first: usize,
    frames: usize,
}
