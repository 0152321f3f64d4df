#include "text/images/image_rules.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr int64_t kLargestEdge = 4096;    // longest edge of an idefics3 image after its first resize
constexpr int64_t kMostFramesAlong = 64;  // most frames along a side
constexpr int64_t kMostRatio = 200;       // largest ratio of the sides of a qwen2_vl image
constexpr int64_t kMostRows = 4096;       // most patches along a side of a qwen2_vl image
constexpr int64_t kMostScale = 64;

double ratio_of(ImageSize size) { return static_cast<double>(size.width) / static_cast<double>(size.height); }
int64_t times(int64_t side, double ratio) { return static_cast<int64_t>(static_cast<double>(side) * ratio); }
int64_t over(int64_t side, double ratio) { return static_cast<int64_t>(static_cast<double>(side) / ratio); }
int64_t multiple_above(int64_t side, int64_t edge) { return (side + edge - 1) / edge * edge; }

// Sizes whose longer side is `edge`; the other keeps the ratio, rounded down.
ImageSize with_longer_side(ImageSize size, int64_t edge) {
  const double ratio = ratio_of(size);
  if (size.width >= size.height) return {edge, over(edge, ratio)};
  return {times(edge, ratio), edge};
}

ImageSize at_most(ImageSize size, int64_t edge) {
  return std::max(size.width, size.height) > edge ? with_longer_side(size, edge) : size;
}

ImageSize at_least(ImageSize size, int64_t edge) {
  return {std::max(size.width, edge), std::max(size.height, edge)};
}

// --- idefics2

ImageSize fitted(const ImageRules& rules, ImageSize part) {
  return at_least(at_most(part, rules.longest_edge), rules.shortest_edge);
}

void add_frame(const ImageRules& rules, ImageLayout& layout, int64_t x, int64_t y, ImageSize part) {
  layout.frames.push_back({.x = x, .y = y, .part = part, .size = fitted(rules, part)});
}

void lay_out_quarters(const ImageRules& rules, ImageLayout& layout) {
  const auto [width, height] = layout.image;
  check(width >= 2 && height >= 2, "has ", width, " x ", height,
        " pixels, and to be split it needs 2 x 2: leave it out");
  const int64_t left = width / 2, top = height / 2;
  add_frame(rules, layout, 0, 0, {left, top});
  add_frame(rules, layout, left, 0, {width - left, top});
  add_frame(rules, layout, 0, top, {left, height - top});
  add_frame(rules, layout, left, top, {width - left, height - top});
}

void lay_out_idefics2(const ImageRules& rules, ImageLayout& layout) {
  if (rules.splits) lay_out_quarters(rules, layout);
  add_frame(rules, layout, 0, 0, layout.image);
}

// --- idefics3

ImageSize stretched(ImageSize image, int64_t edge) {
  const auto even_above = [](int64_t side) { return side + side % 2; };
  ImageSize size = with_longer_side(image, edge);
  (image.width >= image.height ? size.height : size.width) =
      even_above(image.width >= image.height ? size.height : size.width);
  return at_least(at_most(at_least(size, 1), kLargestEdge), 1);
}

// The most frames along a side, which can become one pixel longer than an odd longest_edge.
int64_t frames_along(const ImageRules& rules) {
  const int64_t edge = std::min(rules.longest_edge, kLargestEdge);
  return multiple_above(edge + edge % 2, rules.frame_edge) / rules.frame_edge;
}

ImageSize grown(ImageSize size, int64_t edge) {
  const ImageSize next = with_longer_side(size, multiple_above(std::max(size.width, size.height), edge));
  return {multiple_above(next.width, edge), multiple_above(next.height, edge)};
}

void lay_out_idefics3(const ImageRules& rules, ImageLayout& layout) {
  const int64_t edge = rules.frame_edge;
  const ImageSize frame{edge, edge};
  layout.resizes.push_back(stretched(layout.image, rules.longest_edge));
  layout.resizes.push_back(rules.splits ? grown(layout.resizes[0], edge) : frame);
  const ImageSize whole = layout.resizes[1];
  if (whole != frame) {
    layout.frame_rows = whole.height / edge;
    layout.frame_columns = whole.width / edge;
  }
  for (int64_t row = 0; row < layout.frame_rows; ++row)
    for (int64_t column = 0; column < layout.frame_columns; ++column)
      layout.frames.push_back({.x = column * edge, .y = row * edge, .part = frame, .size = frame});
  layout.frames.push_back({.part = whole, .size = frame});
}

// --- qwen2_vl

int64_t square_side(const ImageRules& rules) { return rules.scale * rules.patch_size; }

// Follows the order of operations in transformers, because rounding decides on the size.
ImageSize between(const ImageRules& rules, ImageSize image) {
  const auto side = static_cast<double>(square_side(rules));
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  const auto in_squares = [&](double squares) { return static_cast<int64_t>(squares) * square_side(rules); };
  const ImageSize nearest{in_squares(std::nearbyint(width / side)),
                          in_squares(std::nearbyint(height / side))};
  const int64_t pixels = nearest.width * nearest.height;
  if (pixels > rules.most_pixels) {
    const double shrinks = std::sqrt(width * height / static_cast<double>(rules.most_pixels));
    return at_least(
        {in_squares(std::floor(width / shrinks / side)), in_squares(std::floor(height / shrinks / side))},
        square_side(rules));
  }
  if (pixels >= rules.fewest_pixels) return nearest;
  const double grows = std::sqrt(static_cast<double>(rules.fewest_pixels) / (width * height));
  return {in_squares(std::ceil(width * grows / side)), in_squares(std::ceil(height * grows / side))};
}

void lay_out_qwen2_vl(const ImageRules& rules, ImageLayout& layout) {
  const auto [width, height] = layout.image;
  check(std::max(width, height) <= kMostRatio * std::min(width, height), "has ", width, " x ", height,
        " pixels, but one side may be at most ", kMostRatio, " times the other: leave it out or crop it");
  layout.frames.push_back({.part = layout.image, .size = between(rules, layout.image)});
}

// The most pixels of a frame. A thin image has more than most_pixels if one side is a single square, and an
// image that grows to fewest_pixels has its sides rounded up.
int64_t most_pixels_of_frame(const ImageRules& rules) {
  const auto side = static_cast<double>(square_side(rules)), ratio = static_cast<double>(kMostRatio);
  const auto longer = [&](int64_t pixels) { return std::sqrt(static_cast<double>(pixels) * ratio); };
  const double fewest = static_cast<double>(rules.fewest_pixels);
  const double narrow = side * std::max(side, longer(rules.most_pixels)),
               grown = fewest + side * (longer(rules.fewest_pixels) + std::sqrt(fewest)) + side * side;
  return std::max({rules.most_pixels, static_cast<int64_t>(narrow), static_cast<int64_t>(grown)});
}

// --- all families

void count_patches(const ImageRules& rules, ImageFrame& frame) {
  frame.rows = frame.size.height / rules.patch_size;
  frame.columns = frame.size.width / rules.patch_size;
  frame.tokens = rules.by_squares() ? frame.patches() / (rules.scale * rules.scale) : tokens_of_frame(rules);
}

// --- text

constexpr const char* kFake = "<fake_token_around_image>";

std::string image_tokens(const ImageRules& rules, const ImageFrame& frame) {
  std::string text;
  for (int64_t i = 0; i < frame.tokens; ++i) text += image_marker(rules);
  return text;
}

// --- pixels

Image part_of(const Image& image, const ImageFrame& frame) {
  const auto [width, height] = frame.part;
  Image part{width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height))};
  for (int64_t y = 0; y < height; ++y)
    std::copy_n(image.rgb.begin() + 3 * ((frame.y + y) * image.width + frame.x), 3 * width,
                part.rgb.begin() + 3 * y * width);
  return part;
}

Image pixels_of(const Image& image, const ImageFrame& frame, ResizeFilter filter) {
  const auto [width, height] = frame.size;
  if (frame.part == ImageSize{image.width, image.height}) return resized(image, width, height, filter);
  return resized(part_of(image, frame), width, height, filter);
}

// The normalized value of every byte in every channel.
using Values = std::array<std::array<float, 256>, 3>;

Values values_of(const ImageRules& rules) {
  Values values;
  for (size_t c = 0; c < 3; ++c)
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto scaled = static_cast<float>(static_cast<double>(byte) * rules.rescale);
      values[c][byte] = (scaled - rules.mean[c]) / rules.std[c];
    }
  return values;
}

// Writes the patch in this row and column of patches.
float* write_patch(const ImageRules& rules, const Values& values, const Image& image, int64_t row,
                   int64_t column, float* out) {
  const int64_t side = rules.patch_size, repeats = rules.patch_width() / (3 * side * side);
  for (size_t c = 0; c < 3; ++c) {
    const float* const channel = out;
    for (int64_t j = 0; j < side; ++j) {
      const uint8_t* in = image.rgb.data() + 3 * ((row * side + j) * image.width + column * side) + c;
      for (int64_t i = 0; i < side; ++i) *out++ = values[c][in[3 * i]];
    }
    for (int64_t i = 1; i < repeats; ++i) out = std::copy_n(channel, side * side, out);
  }
  return out;
}

// Calls write(row, column) for the patches of a frame, in their order.
template <class Write>
void each_patch(const ImageRules& rules, const ImageFrame& frame, Write&& write) {
  const int64_t side = rules.by_squares() ? rules.scale : 1;
  for (int64_t top = 0; top < frame.rows; top += side)
    for (int64_t left = 0; left < frame.columns; left += side)
      for (int64_t row = top; row < top + side; ++row)
        for (int64_t column = left; column < left + side; ++column) write(row, column);
}

int32_t* write_positions(const ImageRules& rules, const ImageFrame& frame, int32_t* out) {
  const std::vector<int32_t> of_columns = position_buckets(frame.columns, rules.position_side);
  for (const int32_t of_row : position_buckets(frame.rows, rules.position_side))
    for (const int32_t of_column : of_columns)
      *out++ = of_row * static_cast<int32_t>(rules.position_side) + of_column;
  return out;
}

}  // namespace

void check_rules(const ImageRules& rules) {
  check(rules.patch_size >= 1 && rules.position_side >= 1 && rules.longest_edge >= 1 && rules.latents >= 1,
        "the sizes of image patches, ", rules.patch_size, ", position_side, ", rules.position_side,
        ", longest_edge, ", rules.longest_edge, ", and latents, ", rules.latents, ", must be positive");
  if (rules.family == ImageFamily::idefics2) {
    check(rules.shortest_edge >= rules.patch_size, "shortest_edge of images is ", rules.shortest_edge,
          ", must be at least a patch of ", rules.patch_size);
    return;
  }
  if (rules.by_squares()) {
    check(rules.scale >= 1 && rules.scale <= kMostScale && rules.repeats >= 1 && rules.repeats <= kMostScale,
          "images are cut into squares of ", rules.scale, " patches a side, and patches are repeated ",
          rules.repeats, " times: both must be from 1 to ", kMostScale);
    check(rules.fewest_pixels >= 1 && rules.most_pixels >= rules.fewest_pixels, "images have ",
          rules.fewest_pixels, " to ", rules.most_pixels,
          " pixels; the first must be positive, and at most the second");
    // A side that grows is rounded up to whole squares.
    const int64_t most = rules.patch_size * (kMostRows - rules.scale);
    check(rules.most_pixels <= most * most / kMostRatio, "images of ", rules.most_pixels,
          " pixels could have a side of more than ", kMostRows, " patches: the most is ",
          most * most / kMostRatio);
    return;
  }
  check(rules.scale >= 1 && rules.frame_edge >= 1 && rules.frame_edge / rules.patch_size % rules.scale == 0 &&
            rules.frame_edge >= rules.patch_size,
        "frames of images have ", rules.frame_edge, " pixels a side, which in patches of ", rules.patch_size,
        " must be a multiple of scale_factor = ", rules.scale);
  check(frames_along(rules) <= kMostFramesAlong, "images of longest_edge = ", rules.longest_edge,
        " would have more than ", kMostFramesAlong, " frames of ", rules.frame_edge, " pixels a side");
}

int64_t most_patches(const ImageRules& rules) {
  if (rules.by_squares()) return most_pixels_of_frame(rules) / (rules.patch_size * rules.patch_size);
  if (rules.family == ImageFamily::idefics2) {
    const int64_t side = std::max(rules.longest_edge, rules.shortest_edge) / rules.patch_size;
    return side * side * (rules.splits ? 5 : 1);
  }
  const int64_t frames = rules.splits ? frames_along(rules) : 1;
  return fewest_patches_of_frame(rules) * (frames > 1 ? frames * frames + 1 : 1);
}

int64_t fewest_patches_of_frame(const ImageRules& rules) {
  if (rules.by_squares()) return rules.scale * rules.scale;
  const bool idefics2 = rules.family == ImageFamily::idefics2;
  const int64_t side = (idefics2 ? rules.shortest_edge : rules.frame_edge) / rules.patch_size;
  return side * side;
}

int64_t tokens_of_frame(const ImageRules& rules) {
  if (rules.family == ImageFamily::idefics2) return rules.latents;
  return fewest_patches_of_frame(rules) / (rules.scale * rules.scale);
}

Transparency transparency_of(ImageFamily family, bool is_object) {
  return is_object && family != ImageFamily::idefics2 ? Transparency::over_white : Transparency::ignored;
}

ImageLayout layout_of(const ImageRules& rules, ImageSize image) {
  check_rules(rules);
  check(image.width >= 1 && image.height >= 1, "has no pixels");
  ImageLayout layout;
  layout.image = image;
  if (rules.family == ImageFamily::idefics2)
    lay_out_idefics2(rules, layout);
  else if (rules.family == ImageFamily::idefics3)
    lay_out_idefics3(rules, layout);
  else
    lay_out_qwen2_vl(rules, layout);
  for (ImageFrame& frame : layout.frames) {
    count_patches(rules, frame);
    layout.patches += frame.patches();
    layout.tokens += frame.tokens;
  }
  return layout;
}

std::string_view image_marker(const ImageRules& rules) {
  return rules.family == ImageFamily::qwen2_vl ? "<|image_pad|>" : "<image>";
}

std::string expansion(const ImageRules& rules, const ImageLayout& layout) {
  if (rules.family == ImageFamily::qwen2_vl) return image_tokens(rules, layout.frames.front());
  std::string text;
  if (rules.family == ImageFamily::idefics2) {
    for (const ImageFrame& frame : layout.frames) text += kFake + image_tokens(rules, frame);
    return text + kFake;
  }
  auto frame = layout.frames.begin();
  for (int64_t row = 1; row <= layout.frame_rows; ++row) {
    for (int64_t column = 1; column <= layout.frame_columns; ++column)
      text += str(kFake, "<row_", row, "_col_", column, ">", image_tokens(rules, *frame++));
    text += "\n";
  }
  if (layout.frame_rows > 0) text += "\n";
  return text + kFake + "<global-img>" + image_tokens(rules, *frame) + kFake;
}

std::vector<int32_t> position_buckets(int64_t n, int64_t position_side) {
  const double part = 1.0 / static_cast<double>(position_side);
  const float step = 1.0f / static_cast<float>(n);
  std::vector<int32_t> buckets;
  int64_t bucket = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float begin = std::min(static_cast<float>(i) * step, static_cast<float>(1.0 - 1e-6));
    while (bucket + 1 < position_side && static_cast<float>(static_cast<double>(bucket + 1) * part) <= begin)
      ++bucket;
    buckets.push_back(static_cast<int32_t>(bucket));
  }
  return buckets;
}

void write_patches(const ImageRules& rules, const ImageLayout& layout, const Image& image, float* rows,
                   int32_t* positions, int64_t axis_stride) {
  check(layout.image == ImageSize{image.width, image.height}, "has ", image.width, " x ", image.height,
        " pixels, and had ", layout.image.width, " x ", layout.image.height,
        " before: prepare the data again");
  Image changed;
  const Image* whole = &image;
  for (const ImageSize& size : layout.resizes) {
    changed = resized(*whole, size.width, size.height, rules.filter);
    whole = &changed;
  }
  const Values values = values_of(rules);
  for (const ImageFrame& frame : layout.frames) {
    const Image pixels = pixels_of(*whole, frame, rules.filter);
    each_patch(rules, frame, [&](int64_t row, int64_t column) {
      rows = write_patch(rules, values, pixels, row, column, rows);
      if (!rules.by_squares()) return;
      positions[axis_stride] = static_cast<int32_t>(column);
      *positions++ = static_cast<int32_t>(row);
    });
    if (!rules.by_squares()) positions = write_positions(rules, frame, positions);
  }
}

}  // namespace flatshard
