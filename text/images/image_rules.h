#pragma once
// What a model that reads images sees of one: frames, each cut into patches, and the tokens that stand for
// them in a text. Equal to the processors of transformers 5 that work with Pillow: pixels to the bit.
//
// idefics2: with splits, the four quarters of the image (the first of each pair has the smaller half) and the
//   whole, else the whole. A frame keeps its ratio: its longer side is at most longest_edge, then both are at
//   least shortest_edge. Pixels that fill no patch are left out.
// idefics3, which is SmolVLM's too: the longer side becomes longest_edge, then both sides, enlarged,
// multiples
//   of tile_edge. Frames are tiles of tile_edge x tile_edge, by row, then the whole squeezed into one.
//   Without splits, or if one tile is all, only the whole.
// qwen2_vl, which is Qwen2.5-VL's too: the whole image is the only frame. It is cut into squares of
//   scale x scale patches, at least one along each side. Its sides are rounded to multiples of a square's;
//   where its area would be below fewest_pixels or above most_pixels, both sides are scaled alike first.
//
// A patch is a row of values in the order (channel, y, x), each float(byte * rescale), minus mean, by std.
// Patches of a frame are in rows, like its pixels. In qwen2_vl squares are in rows, and so are the patches of
// each square; a patch has every channel `repeats` times, because it could be one of a video.

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

// How the values of CLIP's images are normalized, and by default qwen2_vl's.
inline constexpr std::array<float, 3> kClipMean{0.48145466f, 0.4578275f, 0.40821073f},
    kClipStd{0.26862954f, 0.26130258f, 0.27577711f};

// As the published preprocessor_config.json and config.json of a model say.
struct ImageRules {
  ImageFamily family = ImageFamily::idefics2;
  int64_t patch_size = 14;
  int64_t position_side = 70;  // the model has position_side^2 positions: image_size / patch_size
  int64_t longest_edge = 980;
  int64_t shortest_edge = 378;  // of idefics2
  int64_t tile_edge = 364;      // of idefics3
  bool splits = true;
  ResizeFilter filter = ResizeFilter::bilinear;
  double rescale = 1.0 / 255;
  std::array<float, 3> mean{0.5f, 0.5f, 0.5f}, std{0.5f, 0.5f, 0.5f};
  int64_t latents = 64;  // tokens of a frame of idefics2
  int64_t scale = 2;     // scale x scale patches become a token of idefics3 and qwen2_vl
  // Of qwen2_vl.
  int64_t fewest_pixels = 56 * 56, most_pixels = 1280 * 28 * 28;
  int64_t repeats = 2;

  bool by_squares() const { return family == ImageFamily::qwen2_vl; }
  int64_t patch_width() const { return 3 * (by_squares() ? repeats : 1) * patch_size * patch_size; }
  int64_t axes() const { return by_squares() ? 2 : 1; }  // of the positions of patches
  bool operator==(const ImageRules&) const = default;
};

// An Error if the rules contradict each other, or cut images into more than 64 x 64 tiles.
void check_rules(const ImageRules& rules);

struct ImageFrame {
  int64_t x = 0, y = 0;  // the part of the image, after its `resizes`, that the frame shows
  ImageSize part;
  ImageSize size;  // to which the part is resized
  int64_t rows = 0, columns = 0, tokens = 0;
  int64_t patches() const { return rows * columns; }
};

struct ImageLayout {
  ImageSize image;
  std::vector<ImageSize> resizes;  // of the whole image, before frames are cut
  std::vector<ImageFrame> frames;
  int64_t tile_rows = 0, tile_columns = 0;  // of idefics3; 0 if the whole is the only frame
  int64_t patches = 0, tokens = 0;          // of all frames; tokens are those named <image>
};

// What transformers makes of transparency. It gives its processors a picture for an image that is an object
// in its record (image_source.h), and they lay it over white, but for that of idefics2. Of an image that is
// named by a text it loads only the colors.
Transparency transparency_of(ImageFamily family, bool is_object);

// From sizes alone. An Error, which follows the name of the image, if it cannot be divided so; or that of
// check_rules().
ImageLayout layout_of(const ImageRules& rules, ImageSize image);

// Of any image: the most patches, and the fewest of a frame.
int64_t most_patches(const ImageRules& rules);
int64_t fewest_patches_of_frame(const ImageRules& rules);
// Of every frame; in qwen2_vl, of the smallest.
int64_t tokens_of_frame(const ImageRules& rules);

// What a template prints for an image: <image>, or in qwen2_vl <|image_pad|>.
std::string_view image_marker(const ImageRules& rules);
// The text that replaces the marker: special tokens and, in idefics3, names of tiles and line ends. In
// idefics2 it begins and ends with <fake_token_around_image>, and where two images follow each other one of
// the two that meet is left out. In qwen2_vl it is the marker, once for each token.
std::string expansion(const ImageRules& rules, const ImageLayout& layout);

// Where an image is among tokens, and how much of a batch it takes.
struct ImageExtent {
  int64_t begin = 0, end = 0;  // all tokens of its expansion
  int64_t tokens = 0;          // those named <image>
  int64_t frames = 0, patches = 0;
  bool operator==(const ImageExtent&) const = default;
};

// The position of each of n patches along a side: in which of position_side equal parts of it the patch
// begins, in the fp32 steps of the models. (For sides that no published model has, PyTorch's differ by its
// vector width.)
std::vector<int32_t> position_buckets(int64_t n, int64_t position_side);

// Writes the patches of all frames, (layout.patches, patch_width), and their positions, (layout.patches):
// bucket of the row * position_side + bucket of the column. In qwen2_vl a position is the row of the patch,
// and `axis_stride` elements later its column.
void write_patches(const ImageRules& rules, const ImageLayout& layout, const Image& image, float* rows,
                   int32_t* positions, int64_t axis_stride = 0);

}  // namespace flatshard
