#include "text/data/sequences.h"

#include <algorithm>

#include "runtime/check.h"

namespace flatshard {

Sequences::Sequences(const TokenFile& file, const PackingOptions& packing, int64_t seq_len)
    : file_(file), packing_(packing), seq_len_(seq_len) {
  check(!file.has_images() || packing.packing == Packing::best_fit || packing.packing == Packing::none,
        file.path(), ": has images, which data.packing = \"", packing.packing,
        "\" could cut: set data.packing = \"best_fit\" or \"none\"");
  if (packing.has_answers()) check_answers();
  if (packing.packing == Packing::wrapped || packing.packing == Packing::documents) {
    count_ = (file.size() - 1) / seq_len;
    check(count_ > 0, file.path(), ": has ", file.size(), " tokens",
          file.left_out() > 0 ? " in its first data.max_samples" : "",
          ", must have at least data.seq_len + 1 = ", seq_len + 1);
  } else {
    packed_.emplace(file, packing, seq_len);
    count_ = packed_->count();
    check(count_ > 0 || !packing.has_answers(), file.path(), ": none of its ",
          file.document_count() / documents_per_record(packing.records), ' ', noun_of(packing.records),
          "s fits data.seq_len = ", seq_len, " with tokens to train on: set a larger data.seq_len");
    check(count_ > 0, file.path(), ": none of its ", file.document_count(),
          " documents has a token to train on within data.seq_len = ", seq_len,
          file.has_images() ? str(", or images that fit it and data.max_patches = ",
                                  patches_of_sequence(packing, file.image_input().rules))
                            : "");
  }
}

void Sequences::check_answers() const {
  check(packing_.packing == Packing::best_fit || packing_.packing == Packing::none, file_.path(),
        ": has answers to compare, which data.packing = \"", packing_.packing,
        "\" could cut: set data.packing = \"best_fit\" or \"none\"");
  check(!file_.has_images(), file_.path(), ": has images, which answers to compare cannot have");
  check(file_.document_count() % documents_per_record(packing_.records) == 0, file_.path(), ": has ",
        file_.document_count(), " documents, which are not ", packing_.records,
        ": make it with prepare --records ", packing_.records);
}

std::vector<int64_t> Sequences::ends_in(int64_t sequence) const {
  const int64_t begin = sequence * seq_len_;
  std::vector<int64_t> ends;
  if (packing_.packing == Packing::documents)
    for (const uint64_t start : file_.starts_in(begin + 1, begin + seq_len_ + 1))
      ends.push_back(static_cast<int64_t>(start) - begin);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());  // empty documents share a start
  return ends;
}

int64_t Sequences::targets_in(int64_t sequence) const {
  if (sequence < 0) return 0;
  int64_t count = 0;
  if (packed_) {
    for (const Piece piece : packed_->pieces(sequence))
      for (const Piece document : documents_of(piece)) count += count_targets(file_, document);
    return count;
  }
  const int64_t S = seq_len_;
  std::vector<uint8_t> trained(static_cast<size_t>(S) + 1);
  file_.read_mask(sequence * S, trained);
  for (const int64_t end : ends_in(sequence)) trained[static_cast<size_t>(end)] = 0;
  return std::count(trained.begin() + 1, trained.end(), uint8_t{1});
}

std::vector<Piece> Sequences::documents_of(Piece piece) const {
  if (documents_per_record(packing_.records) == 1) return {piece};
  std::vector<Piece> documents;
  int64_t begin = piece.begin;
  const auto end_at = [&](int64_t end) {
    documents.push_back({begin, static_cast<int32_t>(end - begin)});
    begin = end;
  };
  for (const uint64_t start : file_.starts_in(begin + 1, begin + piece.length))
    end_at(static_cast<int64_t>(start));
  end_at(piece.begin + piece.length);
  return documents;
}

AnswerCounts Sequences::answers_in(int64_t sequence) const {
  AnswerCounts counts;
  if (sequence < 0) return counts;
  for (const Piece piece : packed_->pieces(sequence)) {
    const std::vector<Piece> documents = documents_of(piece);
    ++counts.examples;
    counts.chosen_tokens += count_targets(file_, documents.front());
    for (const Piece document : documents) counts.tokens += count_targets(file_, document);
  }
  return counts;
}

void Sequences::append_examples(int64_t sequence, int64_t row, std::vector<LaneExample>& examples) const {
  if (sequence < 0) return;
  int64_t t = row * seq_len_ + first_place(sequence);
  for (const Piece piece : packed_->pieces(sequence)) {
    const int64_t end = t + piece.length;
    examples.push_back(
        {.piece = piece, .begin = t, .second = t + documents_of(piece).front().length, .end = end});
    t = end;
  }
}

void Sequences::read_piece(Piece piece, int32_t* tokens, int32_t* targets) const {
  const auto length = static_cast<size_t>(piece.length);
  file_.read(piece.begin, {tokens, length});
  std::vector<uint8_t> trained(length);
  file_.read_mask(piece.begin, trained);
  for (size_t t = 1; t < length; ++t) targets[t - 1] = trained[t] ? tokens[t] : kIgnoredTarget;
  targets[length - 1] = kIgnoredTarget;
}

void Sequences::read_window(int64_t sequence, int32_t* tokens, int32_t* targets) const {
  const int64_t S = seq_len_;
  std::vector<int32_t> text(static_cast<size_t>(S) + 1), predicted(text.size());
  read_piece({sequence * S, static_cast<int32_t>(S + 1)}, text.data(), predicted.data());
  std::copy_n(text.begin(), S, tokens);
  std::copy_n(predicted.begin(), S, targets);
  for (const int64_t end : ends_in(sequence)) targets[end - 1] = kIgnoredTarget;
}

int64_t Sequences::tokens_in(int64_t sequence) const {
  if (sequence < 0) return 0;
  if (!packed_) return seq_len_;
  int64_t used = 0;
  for (const Piece piece : packed_->pieces(sequence)) used += piece.length;
  return used;
}

int64_t Sequences::first_place(int64_t sequence) const {
  return packing_.padding == Padding::right ? 0 : seq_len_ - tokens_in(sequence);
}

void Sequences::append_images(int64_t sequence, int64_t row, std::vector<LaneImage>& images) const {
  if (sequence < 0 || !file_.has_images()) return;
  int64_t t = row * seq_len_ + first_place(sequence);
  for (const Piece piece : packed_->pieces(sequence)) {
    for (const TokenImage& image : file_.images()->images_in(piece.begin, piece.begin + piece.length))
      images.push_back({&file_, image, t + image.extent.begin - piece.begin});
    t += piece.length;
  }
}

int64_t Sequences::read(int64_t sequence, int64_t row, const Batch& space, int64_t boundaries) const {
  const int64_t S = seq_len_, at = row * S;
  int32_t* tokens = space.tokens.as<int32_t>() + at;
  int32_t* targets = space.targets.as<int32_t>() + at;
  int32_t* positions = space.positions.as<int32_t>() + at;
  int32_t* starts = space.boundaries.as<int32_t>();
  const int64_t first = boundaries;
  const auto add_boundary = [&](int64_t t) { starts[boundaries++] = static_cast<int32_t>(at + t); };
  if (sequence < 0 || packed_) {
    std::fill_n(tokens, S, 0);
    std::fill_n(targets, S, kPaddingTarget);
  }
  add_boundary(0);
  if (sequence >= 0 && packed_) {
    int64_t t = first_place(sequence);
    for (const Piece piece : packed_->pieces(sequence)) {
      for (const Piece document : documents_of(piece)) {
        if (t > 0) add_boundary(t);
        read_piece(document, tokens + t, targets + t);
        t += document.length;
      }
    }
    if (t < S) add_boundary(t);
  } else if (sequence >= 0) {
    read_window(sequence, tokens, targets);
    for (const int64_t end : ends_in(sequence))
      if (end < S) add_boundary(end);
  }
  for (int64_t t = 0, next = first, position = 0; t < S; ++t) {
    if (next < boundaries && starts[next] == at + t) {
      position = 0;
      ++next;
    }
    positions[t] = static_cast<int32_t>(position++);
  }
  return boundaries;
}

}  // namespace flatshard
