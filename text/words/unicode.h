#pragma once
// The Unicode properties that tokenizers need, from utf8proc (unicode_utf8proc.cpp). In a build without it
// (unicode_missing.cpp) every function throws an Error that names the package. A code point that is
// newer than the library's version of Unicode counts as unassigned.

#include <cstdint>

#include "text/words/aligned_text.h"

namespace flatshard {

// Sets of code points, as bits.
enum CharSet : uint8_t {
  kLetter = 1,       // \p{L}
  kNumber = 2,       // \p{N}
  kSpace = 4,        // White_Space
  kPunctuation = 8,  // \p{P} of Unicode 8, and all punctuation of ASCII
  kWord = 16         // \w: alphabetic, marks, decimal digits, connectors, joiners
};

// The sets of every code point: an array indexed by code points.
const uint8_t* char_sets();

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Returns false if the text is already in this form; otherwise writes the text in this form.
bool normalize(NormalForm form, const AlignedView& text, AlignedText* out);

// Appends the lowercase form of every character.
void lowercase(const AlignedView& text, AlignedText* out);

}  // namespace flatshard
