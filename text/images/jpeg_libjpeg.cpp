#include <csetjmp>
#include <cstdio>
#include <jerror.h>
#include <jpeglib.h>

#include "runtime/check.h"
#include "text/images/image_header.h"

namespace flatshard {
namespace {

// Each scan of a progressive JPEG costs time in proportion to the picture; encoders write about ten.
constexpr int kMaxScans = 64;

// libjpeg's error handlers, and the state that they leave.
struct Errors : jpeg_error_mgr {
  std::jmp_buf exit;
  char text[JMSG_LENGTH_MAX] = "";
  bool truncated = false;
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* errors = static_cast<Errors*>(info->err);
  errors->format_message(info, errors->text);
  std::longjmp(errors->exit, 1);
}

// A warning is no error, except for a file without an end: libjpeg invents the missing pixels.
void hear_message(j_common_ptr info, int level) {
  auto* errors = static_cast<Errors*>(info->err);
  errors->truncated = level < 0 && errors->msg_code == JWRN_JPEG_EOF;
  if (errors->truncated) leave(info);
}

void count_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  auto* errors = static_cast<Errors*>(info->err);
  std::snprintf(errors->text, sizeof errors->text, "more than %d scans", kMaxScans);
  std::longjmp(errors->exit, 1);
}

class JpegDecoder {
 public:
  JpegDecoder() {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = leave;
    errors_.emit_message = hear_message;
    progress_.progress_monitor = count_scans;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Returns false after an error.
  bool start(std::span<const std::byte> file) {
    if (setjmp(errors_.exit) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    return true;
  }
  bool has_size(const ImageHeader& header) const {
    return info_.output_width == header.width && info_.output_height == header.height &&
           info_.output_components == 3;
  }
  bool read_rows(uint8_t* pixels) {
    if (setjmp(errors_.exit) != 0) return false;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + size_t{info_.output_scanline} * info_.output_width * 3;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    return true;
  }
  [[noreturn]] void refuse() const {
    if (errors_.truncated) fail("is truncated: the JPEG has no end; copy or download it again");
    fail(str("is a damaged JPEG (", errors_.text, "): replace it"));
  }

 private:
  jpeg_decompress_struct info_{};
  Errors errors_{};
  jpeg_progress_mgr progress_{};
};

}  // namespace

std::vector<uint8_t> decode_jpeg(std::span<const std::byte> file, const ImageHeader& header) {
  JpegDecoder decoder;
  if (!decoder.start(file)) decoder.refuse();
  check(decoder.has_size(header), "is a damaged JPEG: it has two sizes");
  std::vector<uint8_t> pixels(static_cast<size_t>(header.width * header.height * 3));
  if (!decoder.read_rows(pixels.data())) decoder.refuse();
  return pixels;
}

}  // namespace flatshard
