#include <zlib.h>

#include "runtime/check.h"
#include "text/input/decompressor.h"

namespace flatshard {
namespace {

constexpr int kGzipOnly = 16;  // added to the number of window bits

class GzipDecompressor : public Decompressor {
 public:
  GzipDecompressor() { check(inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK, "zlib cannot start"); }
  ~GzipDecompressor() override { inflateEnd(&stream_); }
  GzipDecompressor(const GzipDecompressor&) = delete;
  GzipDecompressor& operator=(const GzipDecompressor&) = delete;

  Step decode(std::span<const char> in, std::span<char> out) override {
    if (in.empty() && complete_) return {};
    if (complete_) inflateReset(&stream_);
    complete_ = false;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));  // zlib does not write there
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int result = inflate(&stream_, Z_NO_FLUSH);
    check(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR,
          "its gzip data are damaged: ", stream_.msg ? stream_.msg : "zlib cannot read them");
    complete_ = result == Z_STREAM_END;
    return {in.size() - stream_.avail_in, out.size() - stream_.avail_out};
  }
  bool is_complete() const override { return complete_; }

 private:
  z_stream stream_{};
  bool complete_ = false;
};

}  // namespace

std::unique_ptr<Decompressor> make_gzip_decompressor() { return std::make_unique<GzipDecompressor>(); }

}  // namespace flatshard
