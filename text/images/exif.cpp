#include "text/images/exif.h"

#include <utility>

namespace flatshard {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kByte = 1, kShort = 3, kLong = 4;

// Reads numbers of a TIFF file in its byte order; returns nothing beyond its end.
class TiffBytes {
 public:
  TiffBytes(std::span<const std::byte> bytes, bool little) : bytes_(bytes), little_(little) {}

  std::optional<uint32_t> number(size_t at, size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return {};
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i)
      value = value << 8 | static_cast<uint32_t>(bytes_[at + (little_ ? size - 1 - i : i)]);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool little_;
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<int> orientation_of_entry(const TiffBytes& tiff, size_t entry) {
  const auto type = tiff.number(entry + 2, 2), count = tiff.number(entry + 4, 4);
  if (!type || count != 1 || (type != kByte && type != kShort && type != kLong)) return {};
  const auto value = tiff.number(entry + 8, type == kByte ? 1 : type == kShort ? 2 : 4);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

}  // namespace

std::optional<int> exif_orientation(std::span<const std::byte> exif) {
  using namespace std::string_view_literals;
  if (text_of(exif).starts_with("Exif\0\0"sv)) exif = exif.subspan(6);
  const std::string_view text = text_of(exif);
  const bool little = text.starts_with("II*\0"sv);
  if (!little && !text.starts_with("MM\0*"sv)) return {};
  const TiffBytes tiff(exif, little);
  const uint32_t directory = tiff.number(4, 4).value_or(0);
  const uint32_t entries = tiff.number(directory, 2).value_or(0);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = size_t{directory} + 2 + size_t{12} * i;
    const auto tag = tiff.number(entry, 2);
    if (!tag) return {};
    if (tag == kOrientationTag) return orientation_of_entry(tiff, entry);
  }
  return {};
}

std::optional<int> xmp_orientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != xmp.npos; at = xmp.find(kName, at + 1)) {
    std::string_view value = xmp.substr(at + kName.size());
    if (value.starts_with("=\""))
      value.remove_prefix(2);
    else if (value.starts_with(">"))
      value.remove_prefix(1);
    else
      continue;
    if (!value.empty() && value[0] >= '0' && value[0] <= '9') return value[0] - '0';
  }
  return {};
}

Image oriented(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const bool turned = orientation >= 5;  // width and height are swapped
  const bool mirrored = orientation == 2 || orientation == 3 || orientation >= 7;  // left is right
  const bool upended = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image result{image.width, image.height, std::vector<uint8_t>(image.rgb.size())};
  int64_t step_x = mirrored ? -1 : 1, step_y = upended ? -image.width : image.width;  // steps in the input
  const int64_t first = (mirrored ? image.width - 1 : 0) + (upended ? (image.height - 1) * image.width : 0);
  if (turned) {
    std::swap(result.width, result.height);
    std::swap(step_x, step_y);
  }
  uint8_t* out = result.rgb.data();
  for (int64_t y = 0; y < result.height; ++y)
    for (int64_t x = 0; x < result.width; ++x, out += 3) {
      const uint8_t* in = image.rgb.data() + 3 * (first + x * step_x + y * step_y);
      out[0] = in[0];
      out[1] = in[1];
      out[2] = in[2];
    }
  return result;
}

}  // namespace flatshard
