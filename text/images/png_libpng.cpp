#include <algorithm>
#include <cstdio>
#include <png.h>

#include "runtime/check.h"
#include "text/images/image_header.h"

namespace flatshard {
namespace {

constexpr png_alloc_size_t kMaxChunkBytes = 1 << 23;  // limit on chunks other than pixels; they may expand
constexpr int kMaxChunks = 1000;                      // limit on chunks that libpng keeps

class PngDecoder {
 public:
  explicit PngDecoder(std::span<const std::byte> file) : file_(file) {}
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  // Returns false after an error.
  bool start() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, leave, ignore);
    if (png_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return false;
    png_set_read_fn(png_, this, read);
    png_set_chunk_malloc_max(png_, kMaxChunkBytes);
    png_set_chunk_cache_max(png_, kMaxChunks);
    png_read_info(png_, info_);
    png_set_expand(png_);  // expands palettes, low bit depths and one transparent color
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool has_size(const ImageHeader& header) const {
    return png_get_image_width(png_, info_) == header.width &&
           png_get_image_height(png_, info_) == header.height &&
           png_get_rowbytes(png_, info_) == png_get_image_width(png_, info_) * channels();
  }
  size_t channels() const { return png_get_channels(png_, info_); }
  bool read_rows(uint8_t* pixels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    const size_t height = png_get_image_height(png_, info_), stride = png_get_rowbytes(png_, info_);
    for (int pass = 0; pass < passes_; ++pass)
      for (size_t y = 0; y < height; ++y) png_read_row(png_, pixels + y * stride, nullptr);
    return true;
  }
  [[noreturn]] void refuse() const {
    if (truncated_) fail("is truncated: the PNG has no end; copy or download it again");
    fail(str("is a damaged PNG (", text_, "): replace it"));
  }

 private:
  static void leave(png_structp png, png_const_charp text) {
    std::snprintf(static_cast<PngDecoder*>(png_get_error_ptr(png))->text_, sizeof text_, "%s", text);
    png_longjmp(png, 1);
  }
  static void ignore(png_structp, png_const_charp) {}
  static void read(png_structp png, png_bytep to, size_t size) {
    auto* self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    self->truncated_ = size > self->file_.size();
    if (self->truncated_) png_error(png, "truncated");
    std::copy_n(reinterpret_cast<const png_byte*>(self->file_.data()), size, to);
    self->file_ = self->file_.subspan(size);
  }

  std::span<const std::byte> file_;  // the unread part of the file
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  bool truncated_ = false;
  char text_[200] = "out of memory";
};

}  // namespace

std::vector<uint8_t> decode_png(std::span<const std::byte> file, const ImageHeader& header) {
  PngDecoder decoder(file);
  if (!decoder.start()) decoder.refuse();
  check(decoder.has_size(header) && decoder.channels() >= 3, "is a damaged PNG: it has two sizes");
  std::vector<uint8_t> pixels(static_cast<size_t>(header.width * header.height) * decoder.channels());
  if (!decoder.read_rows(pixels.data())) decoder.refuse();
  return pixels;
}

}  // namespace flatshard
