#include "text/words/pre_tokenizer.h"

#include <algorithm>

#include "runtime/utf8.h"
#include "text/words/unicode.h"

namespace flatshard {
namespace {

struct Part {
  size_t begin, end;
  bool is_match;
};

// Joins each match to the part before it, unless that part is also a match.
void merge_with_previous(std::vector<Part>& parts) {
  size_t count = 0;
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.is_match && !after_match && count > 0)
      parts[count - 1].end = part.end;
    else
      parts[count++] = part;
    after_match = part.is_match;
  }
  parts.resize(count);
}

void merge_with_next(std::vector<Part>& parts) {
  std::reverse(parts.begin(), parts.end());
  for (Part& part : parts) std::swap(part.begin, part.end);
  merge_with_previous(parts);
  for (Part& part : parts) std::swap(part.begin, part.end);
  std::reverse(parts.begin(), parts.end());
}

void merge_same_kind(std::vector<Part>& parts) {
  size_t count = 0;
  for (const Part& part : parts) {
    if (count > 0 && parts[count - 1].is_match == part.is_match)
      parts[count - 1].end = part.end;
    else
      parts[count++] = part;
  }
  parts.resize(count);
}

}  // namespace

CutStep split_step(Pattern pattern, SplitBehavior behavior, bool invert) {
  if (behavior == SplitBehavior::isolated)
    return [pattern = std::move(pattern)](const AlignedView& piece, const TakePiece& take) {
      pattern.cut(piece.text, [&](size_t begin, size_t end, bool) { take(piece.sub(begin, end)); });
    };
  if (behavior == SplitBehavior::removed)
    return [pattern = std::move(pattern), invert](const AlignedView& piece, const TakePiece& take) {
      pattern.cut(piece.text, [&](size_t begin, size_t end, bool is_match) {
        if (is_match == invert) take(piece.sub(begin, end));
      });
    };
  return [pattern = std::move(pattern), behavior, invert](const AlignedView& piece, const TakePiece& take) {
    std::vector<Part> parts;
    pattern.cut(piece.text, [&](size_t begin, size_t end, bool is_match) {
      parts.push_back({begin, end, is_match != invert});
    });
    if (behavior == SplitBehavior::contiguous)
      merge_same_kind(parts);
    else if (behavior == SplitBehavior::merged_with_previous)
      merge_with_previous(parts);
    else
      merge_with_next(parts);
    for (const Part& part : parts) take(piece.sub(part.begin, part.end));
  };
}

CutStep whitespace_step() {
  return [](const AlignedView& piece, const TakePiece& take) {
    const uint8_t* const sets = char_sets();
    size_t begin = 0;
    unsigned kind = kSpace;  // kind of the part that begins there
    for (size_t at = 0; at < piece.size();) {
      const size_t here = at;
      const unsigned next = sets[next_code_point(piece.text, at)] & (kSpace | kWord);
      if (next == kind) continue;
      if (kind != kSpace) take(piece.sub(begin, here));
      begin = here;
      kind = next;
    }
    if (kind != kSpace) take(piece.sub(begin, piece.size()));
  };
}

CutStep leading_space_step() {
  return [](const AlignedView& piece, const TakePiece& take) {
    if (piece.text.starts_with(' ')) return take(piece);
    AlignedText spaced;
    spaced.append(" ", piece.origin(0));
    spaced.append(piece);
    take(spaced.view());
  };
}

CutStep metaspace_step(std::string replacement, PrependScheme scheme, bool split) {
  return
      [replacement = std::move(replacement), scheme, split](const AlignedView& piece, const TakePiece& take) {
        AlignedText spaced;
        const bool wanted =
            scheme == PrependScheme::always || (scheme == PrependScheme::first && piece.origin(0) == 0);
        if (wanted && !piece.text.starts_with(' ') && !piece.text.starts_with(replacement))
          spaced.append(replacement, piece.origin(0));
        for (size_t at = 0; at < piece.size();) {
          const size_t space = std::min(piece.text.find(' ', at), piece.size());
          spaced.append(piece.sub(at, space));
          if (space < piece.size()) spaced.append(replacement, piece.origin(space));
          at = space + 1;
        }
        const AlignedView all = spaced.view();
        if (!split) return take(all);
        size_t begin = 0;
        for (size_t at = all.text.find(replacement); at != all.text.npos;
             at = all.text.find(replacement, at + 1)) {
          take(all.sub(begin, at));
          begin = at;
        }
        take(all.sub(begin, all.size()));
      };
}

}  // namespace flatshard
