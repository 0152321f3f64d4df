#include <zstd.h>

#include "runtime/check.h"
#include "text/input/decompressor.h"

namespace flatshard {
namespace {

// The default of zstd. A frame with a larger window is refused, so memory is bounded.
constexpr int kMostWindowBits = 27;

class ZstdDecompressor : public Decompressor {
 public:
  ZstdDecompressor() : stream_(ZSTD_createDStream()) {
    check(stream_ != nullptr, "zstd cannot start");
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kMostWindowBits);
  }
  ~ZstdDecompressor() override { ZSTD_freeDStream(stream_); }
  ZstdDecompressor(const ZstdDecompressor&) = delete;
  ZstdDecompressor& operator=(const ZstdDecompressor&) = delete;

  Step decode(std::span<const char> in, std::span<char> out) override {
    if (in.empty() && complete_) return {};
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t left = ZSTD_decompressStream(stream_, &to, &from);
    check(!ZSTD_isError(left), "its zstd data are damaged or need more than 2^", kMostWindowBits,
          " bytes of memory: ", ZSTD_getErrorName(left));
    complete_ = left == 0;
    return {from.pos, to.pos};
  }
  bool is_complete() const override { return complete_; }

 private:
  ZSTD_DStream* stream_;
  bool complete_ = false;
};

}  // namespace

std::unique_ptr<Decompressor> make_zstd_decompressor() { return std::make_unique<ZstdDecompressor>(); }

}  // namespace flatshard
