#pragma once
// The frames that a model sees of an image, each cut into patches, and the tokens that stand for them in a
// text. Equal to the processors of transformers 5 that work with Pillow: pixels to the bit.
//
// idefics2: with splits, frames are the four quarters of the image (the first of each pair has the smaller
//   half) and the whole image; otherwise only the whole image. A frame keeps its ratio: its longer side is at
//   most longest_edge, then both sides are at least shortest_edge. Pixels that fill no patch are dropped.
// idefics3, also used by SmolVLM: the longer side becomes longest_edge, then both sides grow to multiples of
//   frame_edge. Frames have frame_edge x frame_edge pixels, by row; the last is the whole image, squeezed.
//   Without splits, or if one frame covers the image, the whole image is the only frame.
// qwen2_vl, also used by Qwen2.5-VL: the whole image is the only frame. It is cut into squares of
//   scale x scale patches, at least one along each side. Its sides are rounded to multiples of a square's
//   side; if its area would be below fewest_pixels or above most_pixels, both sides are scaled alike first.
//
// A patch is a row of values in the order (channel, y, x). Each value is float(byte * rescale), minus mean,
// divided by std. The patches of a frame are in rows, like its pixels. In qwen2_vl the squares are in rows,
// and so are the patches of each square. A patch of qwen2_vl has every channel `repeats` times, because it
// could be part of a video.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/images/image_file.h"
#include "text/images/resize.h"

namespace flatshard {

enum class ImageFamily { idefics2, idefics3, qwen2_vl };
constexpr auto value_names(ImageFamily) { return std::array{"idefics2", "idefics3", "qwen2_vl"}; }

// The normalization of CLIP's images, which is also the default of qwen2_vl.
inline constexpr std::array<float, 3> kClipMean{0.48145466f, 0.4578275f, 0.40821073f},
    kClipStd{0.26862954f, 0.26130258f, 0.27577711f};

// The rules in the published preprocessor_config.json and config.json of a model.
struct ImageRules {
  ImageFamily family = ImageFamily::idefics2;
  int64_t patch_size = 14;
  int64_t position_side = 70;  // the model has position_side^2 positions: image_size / patch_size
  int64_t longest_edge = 980;
  int64_t shortest_edge = 378;  // used only by idefics2
  int64_t frame_edge = 364;     // used only by idefics3
  bool splits = true;
  ResizeFilter filter = ResizeFilter::bilinear;
  double rescale = 1.0 / 255;
  std::array<float, 3> mean{0.5f, 0.5f, 0.5f}, std{0.5f, 0.5f, 0.5f};
  int64_t latents = 64;  // tokens of an idefics2 frame
  int64_t scale = 2;     // scale x scale patches become a token in idefics3 and qwen2_vl
  // Used only by qwen2_vl.
  int64_t fewest_pixels = 56 * 56, most_pixels = 1280 * 28 * 28;
  int64_t repeats = 2;

  bool by_squares() const { return family == ImageFamily::qwen2_vl; }
  int64_t patch_width() const { return 3 * (by_squares() ? repeats : 1) * patch_size * patch_size; }
  int64_t axes() const { return by_squares() ? 2 : 1; }  // coordinates of a patch position
  bool operator==(const ImageRules&) const = default;
};

// Throws an Error if the rules contradict each other, or cut images into more than 64 x 64 frames.
void check_rules(const ImageRules& rules);

struct ImageFrame {
  int64_t x = 0, y = 0;  // top left corner of the part of the resized image that the frame shows
  ImageSize part;
  ImageSize size;  // the part is resized to this size
  int64_t rows = 0, columns = 0, tokens = 0;
  int64_t patches() const { return rows * columns; }
};

struct ImageLayout {
  ImageSize image;
  std::vector<ImageSize> resizes;  // resizes of the whole image, before frames are cut
  std::vector<ImageFrame> frames;
  int64_t frame_rows = 0, frame_columns = 0;  // idefics3; 0 if the whole image is the only frame
  int64_t patches = 0, tokens = 0;            // sums over all frames; only <image> tokens count
};

// The treatment of transparency by transformers. If the record has the image as an object (image_source.h),
// the processor gets a picture and, except for idefics2, composites it over white. If the record names the
// image by a text, only the colors are loaded.
Transparency transparency_of(ImageFamily family, bool is_object);

// Computes the layout from sizes alone. Throws the Error of check_rules(), or an Error whose text follows the
// name of the image if the image cannot be divided like this.
ImageLayout layout_of(const ImageRules& rules, ImageSize image);

// Bounds for any image: its most patches, and the fewest patches of a frame.
int64_t most_patches(const ImageRules& rules);
int64_t fewest_patches_of_frame(const ImageRules& rules);
// The tokens of every frame; in qwen2_vl, of the smallest frame.
int64_t tokens_of_frame(const ImageRules& rules);

// The text that a template prints for an image: <image>, or in qwen2_vl <|image_pad|>.
std::string_view image_marker(const ImageRules& rules);
// The text that replaces the marker: special tokens and, in idefics3, names of frames and line ends. In
// idefics2 it begins and ends with <fake_token_around_image>; between two adjacent images this token appears
// only once. In qwen2_vl it is the marker, once for each token.
std::string expansion(const ImageRules& rules, const ImageLayout& layout);

// The position of an image among tokens, and its size in a batch.
struct ImageExtent {
  int64_t begin = 0, end = 0;  // all tokens of its expansion
  int64_t tokens = 0;          // its <image> tokens
  int64_t frames = 0, patches = 0;
  bool operator==(const ImageExtent&) const = default;
};

// The position of each of n patches along a side: the index of the part, among position_side equal parts of
// the side, where the patch begins. Computed in the fp32 steps of the models. (For sides that no published
// model has, PyTorch's results depend on its vector width.)
std::vector<int32_t> position_buckets(int64_t n, int64_t position_side);

// Writes the patches of all frames, (layout.patches, patch_width), and their positions, (layout.patches). A
// position is bucket of the row * position_side + bucket of the column. In qwen2_vl it is the row of the
// patch, and its column is `axis_stride` elements later.
void write_patches(const ImageRules& rules, const ImageLayout& layout, const Image& image, float* rows,
                   int32_t* positions, int64_t axis_stride = 0);

}  // namespace flatshard
