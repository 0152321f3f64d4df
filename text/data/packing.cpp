#include "text/data/packing.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>

#include "runtime/check.h"

namespace flatshard {

int64_t count_targets(const TokenFile& file, Piece piece) {
  if (!file.has_mask()) return piece.length - 1;
  std::vector<uint8_t> trained(static_cast<size_t>(piece.length));
  file.read_mask(piece.begin, trained);
  return std::count(trained.begin() + 1, trained.end(), uint8_t{1});
}

int64_t patches_of_sequence(const PackingOptions& options, const ImageRules& rules) {
  return options.max_patches > 0 ? options.max_patches : most_patches(rules);
}

namespace {

// The images of documents, which must be requested in order.
class ImagesOfDocuments {
 public:
  explicit ImagesOfDocuments(const TokenFile& file) : file_(file) {
    if (file.has_images())
      file.images()->each([&](const TokenImage& image) { images_.push_back(image.extent); });
  }
  std::span<const ImageExtent> in(int64_t begin, int64_t end) {
    const size_t first = next_;
    for (; next_ < images_.size() && images_[next_].begin < end; ++next_)
      check(images_[next_].begin >= begin && images_[next_].end <= end, file_.path(),
            ": is damaged: an image is in two documents");
    return std::span(images_).subspan(first, next_ - first);
  }

 private:
  const TokenFile& file_;
  std::vector<ImageExtent> images_;
  size_t next_ = 0;
};

// The number of patches of the images; nothing if some of their tokens are not in the piece.
std::optional<int64_t> patches_in(std::span<const ImageExtent> images, Piece piece) {
  int64_t patches = 0;
  for (const ImageExtent& image : images) {
    if (image.begin < piece.begin || image.end > piece.begin + piece.length) return {};
    patches += image.patches;
  }
  return patches;
}

int64_t max_patches_of(const TokenFile& file, const PackingOptions& options) {
  return file.has_images() ? patches_of_sequence(options, file.image_input().rules) : 0;
}

// The sequences with free space, by their free tokens and patches.
class Rooms {
 public:
  void add(size_t sequence, int64_t tokens, int64_t patches) {
    by_tokens_[tokens][patches].push_back(sequence);
  }

  struct Room {
    size_t sequence;
    int64_t tokens, patches;
  };
  // Removes the fullest sequence with enough space, the oldest of several; nothing if there is none.
  std::optional<Room> take(int64_t tokens, int64_t patches) {
    for (auto room = by_tokens_.lower_bound(tokens); room != by_tokens_.end(); ++room) {
      const auto found = room->second.lower_bound(patches);
      if (found == room->second.end()) continue;
      const Room taken{found->second.front(), room->first, found->first};
      found->second.pop_front();
      if (found->second.empty()) room->second.erase(found);
      if (room->second.empty()) by_tokens_.erase(room);
      return taken;
    }
    return {};
  }

 private:
  std::map<int64_t, std::map<int64_t, std::deque<size_t>>> by_tokens_;  // sequences, oldest first
};

}  // namespace

PackedSequences::PackedSequences(const TokenFile& file, const PackingOptions& options, int64_t seq_len) {
  if (options.has_answers())
    add_examples(file, documents_per_record(options.records), seq_len);
  else
    add_documents(file, options, seq_len);
  if (options.packing != Packing::none) {
    fit_best(seq_len, max_patches_of(file, options));
    return;
  }
  for (size_t i = 0; i <= pieces_.size(); ++i) begins_.push_back(i);
}

void PackedSequences::add_examples(const TokenFile& file, int64_t documents_of_example, int64_t seq_len) {
  int64_t first = 0, documents = 0;
  bool is_trained = true;
  file.each_document([&](int64_t begin, int64_t length) {
    if (documents == 0) {
      first = begin;
      is_trained = true;
    }
    is_trained = is_trained && length > 0 &&
                 (length > seq_len || count_targets(file, {begin, static_cast<int32_t>(length)}) > 0);
    if (++documents < documents_of_example) return;
    documents = 0;
    const int64_t whole = begin + length - first;
    if (!is_trained) {
      ++losses_.untrained;
    } else if (whole > seq_len) {
      ++losses_.long_examples;
    } else {
      pieces_.push_back({first, static_cast<int32_t>(whole)});
      used_tokens_ += whole;
    }
  });
}

void PackedSequences::add_documents(const TokenFile& file, const PackingOptions& options, int64_t seq_len) {
  ImagesOfDocuments images(file);
  const int64_t max_patches = max_patches_of(file, options);
  file.each_document([&](int64_t begin, int64_t length) {
    if (length == 0) {
      ++losses_.empty;
      return;
    }
    const int64_t excess = std::max<int64_t>(0, length - seq_len);
    if (options.packing == Packing::best_fit_split) {
      for (int64_t at = 0; at < length; at += seq_len)
        add(file, {begin + at, static_cast<int32_t>(std::min(seq_len, length - at))}, 0);
      return;
    }
    const Piece piece{options.truncation == Truncation::keep_end ? begin + excess : begin,
                      static_cast<int32_t>(length - excess)};
    const std::optional<int64_t> patches = patches_in(images.in(begin, begin + length), piece);
    if (!patches || *patches > max_patches) {
      ++losses_.images;
      return;
    }
    if (excess > 0) ++losses_.truncated;
    losses_.truncated_tokens += excess;
    add(file, piece, *patches);
  });
}

void PackedSequences::add(const TokenFile& file, Piece piece, int64_t patches) {
  if (count_targets(file, piece) == 0) {
    ++losses_.untrained;
    return;
  }
  pieces_.push_back(piece);
  used_tokens_ += piece.length;
  used_patches_ += patches;
  if (file.has_images()) patches_.push_back(patches);
}

// Sorts the pieces by the larger of their shares of a sequence, in tokens or in patches, largest first.
void PackedSequences::sort_by_size(int64_t seq_len, int64_t max_patches) {
  if (patches_.empty()) {
    std::stable_sort(pieces_.begin(), pieces_.end(),
                     [](const Piece& a, const Piece& b) { return a.length > b.length; });
    return;
  }
  const auto share = [&](size_t i) {
    return std::max(pieces_[i].length * max_patches, patches_[i] * seq_len);
  };
  std::vector<size_t> order(pieces_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return share(a) > share(b); });
  std::vector<Piece> pieces;
  std::vector<int64_t> patches;
  for (const size_t i : order) {
    pieces.push_back(pieces_[i]);
    patches.push_back(patches_[i]);
  }
  pieces_ = std::move(pieces);
  patches_ = std::move(patches);
}

void PackedSequences::fit_best(int64_t seq_len, int64_t max_patches) {
  sort_by_size(seq_len, max_patches);
  // A sequence with space for fewer patches than any document has is full.
  const int64_t least = patches_.empty() ? 0 : *std::min_element(patches_.begin(), patches_.end());
  std::vector<size_t> sequence_of(pieces_.size()), sizes;  // sizes: number of pieces
  Rooms rooms;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const int64_t length = pieces_[i].length, patches = patches_.empty() ? 0 : patches_[i];
    std::optional<Rooms::Room> room = rooms.take(length, patches);
    if (!room) {
      room = {sizes.size(), seq_len, max_patches};
      sizes.push_back(0);
    }
    if (room->tokens > length && room->patches - patches >= least)
      rooms.add(room->sequence, room->tokens - length, room->patches - patches);
    sequence_of[i] = room->sequence;
    ++sizes[room->sequence];
  }
  begins_.push_back(0);
  for (const size_t size : sizes) begins_.push_back(begins_.back() + size);
  std::vector<Piece> ordered(pieces_.size());
  std::vector<size_t> next(begins_.begin(), begins_.end() - 1);
  for (size_t i = 0; i < pieces_.size(); ++i) ordered[next[sequence_of[i]]++] = pieces_[i];
  pieces_ = std::move(ordered);
  patches_ = {};
}

}  // namespace flatshard
