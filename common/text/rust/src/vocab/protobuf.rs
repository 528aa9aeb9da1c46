//! The part of the Protocol Buffers wire format that SentencePiece's model file needs.
//! https://protobuf.dev/programming-guides/encoding

use crate::error::{Code, Error, Result};

fn broken(what: &str) -> Error {
    Error::new(
        Code::InvalidArgument,
        format!("is not a SentencePiece model: {what}"),
    )
}

pub enum Value<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64,
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub fn bytes(&self) -> Result<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(broken("a field has another type")),
        }
    }

    pub fn text(&self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| broken("a text is not UTF-8"))
    }

    pub fn int(&self) -> Result<i64> {
        match self {
            Self::Varint(value) => Ok(*value as i64),
            _ => Err(broken("a field has another type")),
        }
    }

    pub fn flag(&self) -> Result<bool> {
        Ok(self.int()? != 0)
    }

    pub fn float(&self) -> Result<f32> {
        match self {
            Self::Fixed32(bits) => Ok(f32::from_bits(*bits)),
            _ => Err(broken("a field has another type")),
        }
    }
}

/// Calls `visit` with the number and value of every field of a message, in file order.
pub fn fields<'a>(
    mut message: &'a [u8],
    mut visit: impl FnMut(u64, Value<'a>) -> Result<()>,
) -> Result<()> {
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut message)?),
            1 => {
                take(&mut message, 8)?;
                Value::Fixed64
            }
            2 => {
                let n_bytes = varint(&mut message)?;
                let n_bytes =
                    usize::try_from(n_bytes).map_err(|_| broken("a field is too long"))?;
                Value::Bytes(take(&mut message, n_bytes)?)
            }
            5 => {
                let mut bits = [0; 4];
                bits.copy_from_slice(take(&mut message, 4)?);
                Value::Fixed32(u32::from_le_bytes(bits))
            }
            kind => return Err(broken(&format!("wire type {kind}"))),
        };
        visit(key >> 3, value)?;
    }
    Ok(())
}

fn take<'a>(message: &mut &'a [u8], n_bytes: usize) -> Result<&'a [u8]> {
    let (head, tail) = message
        .split_at_checked(n_bytes)
        .ok_or_else(|| broken("a field goes beyond the end (is the file whole?)"))?;
    *message = tail;
    Ok(head)
}

fn varint(message: &mut &[u8]) -> Result<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(broken("a number of more than 64 bits"))
}
