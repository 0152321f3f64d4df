#include "hub/prompt_images.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "runtime/check.h"
#include "runtime/error_context.h"

namespace flatshard {
namespace {

void append_frames(const ImageInput& input, const std::string& bytes, const ImageFacts& facts,
                   PromptImages& images) {
  const ImageLayout layout = layout_of(input.rules, facts.size);
  const Image image =
      decoded(std::as_bytes(std::span(bytes)), transparency_of(input.rules.family, facts.is_object));
  const size_t before = static_cast<size_t>(images.frames.back()),
               count = static_cast<size_t>(layout.patches),
               width = static_cast<size_t>(input.rules.patch_width()),
               axes = static_cast<size_t>(input.rules.axes());
  images.positions.resize((before + count) * axes);
  images.patches.resize((before + count) * width);
  write_patches(input.rules, layout, image, images.patches.data() + before * width,
                images.positions.data() + before * axes, layout.patches);
  for (const ImageFrame& frame : layout.frames)
    images.frames.push_back(images.frames.back() + static_cast<int32_t>(frame.patches()));
}

}  // namespace

int64_t common_frames(const PromptImages& a, const PromptImages& b) {
  const int64_t most = std::min(a.frame_count(), b.frame_count());
  int64_t same = 0;
  const auto is_same = [&](int64_t frame) {
    const RowCounts rows = a.rows_of(frame);
    if (rows.patches != b.rows_of(frame).patches || rows.patches == 0) return rows.patches == 0;
    const size_t patches = static_cast<size_t>(a.frames.back()), width = a.patches.size() / patches,
                 axes = a.positions.size() / patches,
                 first = static_cast<size_t>(a.frames[static_cast<size_t>(frame)]),
                 count = static_cast<size_t>(rows.patches);
    const auto equal = [](const auto& left, const auto& right, size_t at, size_t n) {
      return std::equal(left.begin() + static_cast<std::ptrdiff_t>(at),
                        left.begin() + static_cast<std::ptrdiff_t>(at + n),
                        right.begin() + static_cast<std::ptrdiff_t>(at));
    };
    return equal(a.positions, b.positions, first * axes, count * axes) &&
           equal(a.patches, b.patches, first * width, count * width);
  };
  while (same < most && is_same(same)) ++same;
  return same;
}

void append_image(const ImageInput& input, const std::string& name, const std::string& bytes,
                  const ImageFacts& facts, PromptImages& images) {
  with_place(name, [&] { append_frames(input, bytes, facts, images); });
}

void find_image_sizes(Conversation& conversation) {
  for (ShownImage& image : conversation.images) image.size = facts_of(image.source).size;
}

TextPrompt encode_prompt(const TextCodec& codec, const PromptRecord& record) {
  if (!record.conversation) return {codec.encode(record.prompt)};
  return with_place(record.where, [&]() -> TextPrompt {
    Conversation conversation = *record.conversation;
    find_image_sizes(conversation);
    return {codec.encode(conversation), std::move(conversation.images)};
  });
}

PromptImages read_images(const ImageInput& input, std::span<const ShownImage> shown) {
  PromptImages images;
  for (const auto& [message, source, size] : shown)
    append_image(input, name_of(source), read_image(source), {.size = size, .is_object = source.is_object},
                 images);
  return images;
}

std::function<PromptImages()> images_of(const std::optional<ImageInput>& input,
                                        const std::vector<ShownImage>& shown) {
  if (!input || shown.empty()) return {};
  return [&input = *input, shown] { return read_images(input, shown); };
}

std::vector<SquareGrid> grids_of(const VisionConfig& vision, const PromptImages& images) {
  std::vector<SquareGrid> all;
  std::vector<int32_t> positions = images.positions;
  for (int64_t frame = 0; frame < images.frame_count(); ++frame) {
    const int64_t patches = images.rows_of(frame).patches;
    const std::array ends{0, static_cast<int32_t>(patches)};
    int32_t* first = positions.data() + 2 * images.frames[static_cast<size_t>(frame)];
    all.push_back(square_grids(vision, {ends, tensor_of(first, {2, patches})}).front());
  }
  return all;
}

TextAxes::TextAxes(const VisionConfig& vision, const PromptImages& images, std::span<const int32_t> prompt)
    : positions_(3 * prompt.size()) {
  std::vector<int32_t> tokens(prompt.begin(), prompt.end()), places(prompt.size());
  std::iota(places.begin(), places.end(), 0);
  const int64_t n = std::ssize(tokens);
  write_axes(vision, grids_of(vision, images), tensor_of(tokens.data(), {n}), tensor_of(places.data(), {n}),
             tensor_of(positions_.data(), {3, n}));
  int64_t last = 0;
  for (int64_t axis = 0; axis < 3; ++axis)
    last = std::max<int64_t>(last, positions_[static_cast<size_t>(axis * n + n - 1)]);
  shift_ = last + 1 - n;
}

}  // namespace flatshard
