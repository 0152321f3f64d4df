#include "text/data/data.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/check.h"
#include "runtime/rng.h"

namespace flatshard {

Permutation::Permutation(int64_t size, uint64_t key)
    : size_(size),
      key_(key),
      half_bits_(std::max(1, (static_cast<int>(std::bit_width(static_cast<uint64_t>(size))) + 1) / 2)) {}

uint64_t Permutation::once(uint64_t i) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = i >> half_bits_, right = i & mask;
  for (uint32_t round = 0; round < 4; ++round) {
    const RandomWords mixed =
        philox({{static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), round, 0}},
               static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32));
    const uint64_t word = (uint64_t{mixed.word[1]} << 32) | mixed.word[0];
    left = std::exchange(right, (left ^ word) & mask);
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator[](int64_t i) const {
  uint64_t at = static_cast<uint64_t>(i);
  do at = once(at);
  while (at >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(at);
}

ImageSizes most_images(const ImageRules& rules, const DataOptions& options) {
  const int64_t patches = patches_of_sequence(options.packing, rules);
  const int64_t frames =
      std::min(patches / fewest_patches_of_frame(rules), options.seq_len / tokens_of_frame(rules));
  return {.patches = options.lane_sequences * patches,
          .width = rules.patch_width(),
          .axes = rules.axes(),
          .frames = options.lane_sequences * frames,
          .rows = options.lane_sequences * frames * tokens_of_frame(rules)};
}

int64_t most_examples(int64_t tokens, int64_t documents) {
  return std::max<int64_t>(1, tokens / (2 * documents));
}

namespace {

// Writes the values of an example's targets into the rows of a lane.
void write_values(const TokenColumn& column, const LaneExample& example, const int32_t* targets,
                  float* values) {
  std::vector<float> of_tokens(static_cast<size_t>(example.piece.length));
  column.read(example.piece.begin, of_tokens);
  for (int64_t t = example.begin; t < example.end; ++t) {
    if (targets[t] < 0) continue;
    const int64_t target = t + 1 - example.begin;
    values[t] = of_tokens[static_cast<size_t>(target)];
    check(!std::isnan(values[t]), column.path(), ": has no value for token ", example.piece.begin + target,
          ": remove it, and it is made again");
  }
}

// Writes the ends of an image's frames, as patch indices, behind the last end of the images before it.
void write_frames(const LaneImage& image, int32_t* last_end, int64_t patches) {
  for (const ImageFrame& frame : layout_of(image).frames) {
    patches += frame.patches();
    *++last_end = static_cast<int32_t>(patches);
  }
}

// Writes the positions of an image's tokens in the lane.
void write_rows(const LaneImage& image, const int32_t* tokens, int32_t* rows) {
  const ImageExtent& extent = image.image.extent;
  int64_t found = 0;
  for (int64_t t = image.at; t < image.at + extent.end - extent.begin; ++t)
    if (tokens[t] == image.file->image_input().token && found++ < extent.tokens)
      *rows++ = static_cast<int32_t>(t);
  check(found == extent.tokens, image.file->path(), ": is damaged: ", found,
        " tokens stand for an image, must be ", extent.tokens);
}

}  // namespace

Data::Data(std::span<const TokenFile* const> files, std::span<const double> weights, DataOptions options)
    : options_(options), mixture_({1}) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < files.size(); ++i) {
    const Source& source =
        sources_.emplace_back(Source{.sequences{*files[i], options.packing, options.seq_len},
                                     .shuffle = i == 0 ? "data order" : str("data order of source ", i)});
    sizes.push_back(source.sequences.count());
    count_ += sizes.back();
  }
  mixture_ = Mixture(weights.empty() ? sizes : whole_weights(weights));
}

Data::Data(const TokenFile& file, DataOptions options) : Data(std::array{&file}, {}, options) {}

int64_t Data::steps_left(int64_t sequence) const {
  return (count_ - sequence + options_.total_sequences - 1) / options_.total_sequences;
}

int64_t Data::steps_per_epoch() const { return steps_left(0); }

void Data::start_at(DataPosition start, std::span<const SourcePosition> sources) {
  constexpr int64_t kMostSeen = int64_t{1} << 61;
  const auto check_position = [](const TokenFile& file, int64_t count, int64_t epoch, int64_t sequence) {
    check(epoch < kMostSeen / count, file.path(), ": has ", count,
          " sequences, but the run is to continue in epoch ", epoch, ", which no run reaches");
    check(sequence < count, file.path(), ": has ", count,
          " sequences, but the run is to continue at sequence ", sequence);
  };
  check_position(sources_.front().sequences.file(), count_, start.epoch, start.sequence);
  start_ = start;
  const std::vector<int64_t> drawn = mixture_.counts_before(start.epoch * count_ + start.sequence);
  for (size_t i = 0; i < sources_.size(); ++i) {
    Source& source = sources_[i];
    source.offset = 0;
    if (sources.empty()) continue;
    const int64_t count = source.sequences.count();
    check_position(source.sequences.file(), count, sources[i].epoch, sources[i].sequence);
    source.offset = sources[i].epoch * count + sources[i].sequence - drawn[i];
  }
}

DataPosition Data::position(int64_t step) const {
  const int64_t steps = step - start_.step, first = steps_left(start_.sequence);
  if (steps < first) return {step, start_.epoch, start_.sequence + steps * options_.total_sequences};
  return {step, start_.epoch + 1 + (steps - first) / steps_per_epoch(),
          (steps - first) % steps_per_epoch() * options_.total_sequences};
}

double Data::steps_until(double epochs) const {
  const auto per_epoch = static_cast<double>(steps_per_epoch());
  const double whole = std::floor(epochs), steps_after = std::ceil((epochs - whole) * per_epoch),
               begin = static_cast<double>(start_.step), later = whole - static_cast<double>(start_.epoch);
  if (later >= 1)
    return begin + static_cast<double>(steps_left(start_.sequence)) + (later - 1) * per_epoch + steps_after;
  const auto batch = static_cast<double>(options_.total_sequences);
  const double sequences = steps_after * batch - static_cast<double>(start_.sequence);
  return begin + (later < 0 ? 0 : std::max(0.0, std::ceil(sequences / batch)));
}

std::vector<SourcePosition> Data::source_positions(int64_t step) const {
  const DataPosition at = position(step);
  const std::vector<int64_t> drawn = mixture_.counts_before(at.epoch * count_ + at.sequence);
  std::vector<SourcePosition> positions;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const int64_t seen = sources_[i].offset + drawn[i], count = sources_[i].sequences.count();
    positions.push_back({.epoch = seen / count, .sequence = seen % count});
  }
  return positions;
}

Data::Place Data::place(int64_t step, int64_t index) const {
  const DataPosition begin = position(step);
  const int64_t of_epoch = begin.sequence + index;
  if (of_epoch >= count_) return {&sources_.front(), -1};
  const Mixture::Sample sample = mixture_.at(begin.epoch * count_ + of_epoch);
  const Source& source = sources_[sample.source];
  const int64_t seen = source.offset + sample.index, count = source.sequences.count();
  if (!options_.shuffle) return {&source, seen % count};
  const RandomStream random(options_.seed, source.shuffle, static_cast<uint64_t>(seen / count));
  const RandomWords key = random.words(0);
  return {&source, Permutation(count, (uint64_t{key.word[1]} << 32) | key.word[0])[seen % count]};
}

std::optional<size_t> Data::source_of(int64_t step, int64_t index) const {
  const Place at = place(step, index);
  if (at.sequence < 0) return {};
  return static_cast<size_t>(at.source - sources_.data());
}

template <class Count, class Of>
std::vector<Count> Data::counts_by_source(int64_t step, Of&& of) const {
  std::vector<Count> counts(sources_.size());
  for (int64_t index = 0; index < options_.total_sequences; ++index) {
    const Place at = place(step, index);
    counts[static_cast<size_t>(at.source - sources_.data())] += of(at);
  }
  return counts;
}

std::vector<int64_t> Data::target_counts(int64_t step) const {
  return counts_by_source<int64_t>(
      step, [](const Place& at) { return at.source->sequences.targets_in(at.sequence); });
}

std::vector<AnswerCounts> Data::answer_counts(int64_t step) const {
  return counts_by_source<AnswerCounts>(
      step, [](const Place& at) { return at.source->sequences.answers_in(at.sequence); });
}

void Data::set_columns(std::vector<std::vector<const TokenColumn*>> of_source) {
  check(of_source.size() == sources_.size(), "columns of ", of_source.size(), " sources for ",
        sources_.size());
  for (size_t i = 0; i < sources_.size(); ++i) sources_[i].columns = std::move(of_source[i]);
}

int64_t Data::target_count(int64_t step) const {
  const std::vector<int64_t> counts = target_counts(step);
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t Data::token_count(int64_t step) const {
  int64_t tokens = 0;
  for (const int64_t count : counts_by_source<int64_t>(
           step, [](const Place& at) { return at.source->sequences.tokens_in(at.sequence); }))
    tokens += count;
  return tokens;
}

Batch Data::read(int64_t step, int64_t lane, const Batch& space) const {
  int64_t boundaries = 0;
  for (int64_t row = 0; row < options_.lane_sequences; ++row) {
    const Place at = place(step, lane * options_.lane_sequences + row);
    boundaries = at.source->sequences.read(at.sequence, row, space, boundaries);
  }
  space.boundaries.as<int32_t>()[boundaries++] =
      static_cast<int32_t>(options_.lane_sequences * options_.seq_len);
  Batch batch = space;
  batch.boundaries = space.boundaries.slice(0, boundaries);
  if (!space.images.patches.empty()) batch.images = read_images(step, lane, space);
  if (!space.answers.examples.empty()) batch.answers = read_answers(step, lane, space);
  return batch;
}

AnswerBatch Data::read_answers(int64_t step, int64_t lane, const Batch& space) const {
  AnswerBatch batch = space.answers;
  const int32_t* const targets = space.targets.as<int32_t>();
  float* const values = batch.values.empty() ? nullptr : batch.values.as<float>();
  std::fill_n(values, batch.values.size(), 0.0f);
  int32_t* rows = batch.examples.as<int32_t>();
  int64_t count = 0;
  std::vector<LaneExample> examples;
  for (int64_t row = 0; row < options_.lane_sequences; ++row) {
    const Place at = place(step, lane * options_.lane_sequences + row);
    examples.clear();
    at.source->sequences.append_examples(at.sequence, row, examples);
    const std::vector<const TokenColumn*>& columns = at.source->columns;
    check(examples.empty() || std::ssize(columns) * space.targets.size() == batch.values.size(),
          "a batch has ", batch.values.size(), " values for ", columns.size(), " columns");
    count += std::ssize(examples);
    check(count <= batch.examples.shape[0], "the answers of a lane are more than planned");
    for (const LaneExample& example : examples) {
      for (const int64_t at_row : {example.begin, example.second, example.end})
        *rows++ = static_cast<int32_t>(at_row);
      for (size_t k = 0; k < columns.size(); ++k)
        write_values(*columns[k], example, targets, values + static_cast<int64_t>(k) * space.targets.size());
    }
  }
  batch.examples = batch.examples.slice(0, count);
  return batch;
}

std::vector<LaneImage> Data::images_of(int64_t step, int64_t lane) const {
  std::vector<LaneImage> images;
  for (int64_t row = 0; row < options_.lane_sequences; ++row) {
    const Place at = place(step, lane * options_.lane_sequences + row);
    at.source->sequences.append_images(at.sequence, row, images);
  }
  return images;
}

ImageBatch Data::read_images(int64_t step, int64_t lane, const Batch& space) const {
  std::vector<LaneImage> images = images_of(step, lane);
  ImageBatch batch = space.images;
  int64_t patches = 0, frames = 0, rows = 0;
  int32_t* const starts = batch.frames.as<int32_t>();
  starts[0] = 0;
  for (const LaneImage& lane_image : images) {
    const ImageExtent& image = lane_image.image.extent;
    check(frames + image.frames < batch.frames.size() && patches + image.patches <= batch.patches.shape[0] &&
              rows + image.tokens <= batch.rows.size(),
          lane_image.file->path(), ": the images of a lane are larger than planned");
    write_frames(lane_image, starts + frames, patches);
    write_rows(lane_image, space.tokens.as<int32_t>(), batch.rows.as<int32_t>() + rows);
    frames += image.frames;
    patches += image.patches;
    rows += image.tokens;
  }
  loader_->load(lane, std::move(images), batch.patches.as<float>(), batch.patch_positions.as<int32_t>());
  if (options_.shuffle || !ends_epoch(step + 1)) loader_->expect(lane, images_of(step + 1, lane));
  batch.patches = batch.patches.slice(0, patches);
  batch.patch_positions = batch.patch_positions.beginning({batch.patch_positions.shape[0], patches});
  batch.frames = batch.frames.slice(0, frames + 1);
  batch.rows = batch.rows.slice(0, rows);
  return batch;
}

}  // namespace flatshard
