#include "text/images/image_header.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/check.h"
#include "runtime/named.h"

namespace flatshard {
namespace {

using namespace std::string_view_literals;
using Bytes = std::span<const std::byte>;

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Bytes part(Bytes file, size_t at, size_t size) {
  check(at <= file.size() && size <= file.size() - at, "is truncated: ", size,
        " bytes should follow at byte ", at, " of ", file.size(), "; copy or download it again");
  return file.subspan(at, size);
}

uint32_t number_in(Bytes bytes, bool little) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    value = value << 8 | static_cast<uint32_t>(bytes[little ? bytes.size() - 1 - i : i]);
  return value;
}

uint32_t big_endian(Bytes file, size_t at, size_t size) { return number_in(part(file, at, size), false); }
uint32_t little_endian(Bytes file, size_t at, size_t size) { return number_in(part(file, at, size), true); }

[[noreturn]] void refuse_animation() { fail("is an animation: save one of its frames as a PNG"); }

// --- orientation

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kByte = 1, kShort = 3, kLong = 4;

// Reads numbers of a TIFF file in its byte order; returns nothing beyond its end.
class TiffBytes {
 public:
  TiffBytes(Bytes bytes, bool little) : bytes_(bytes), little_(little) {}

  std::optional<uint32_t> number(size_t at, size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return {};
    return number_in(bytes_.subspan(at, size), little_);
  }

 private:
  Bytes bytes_;
  bool little_;
};

std::optional<int> orientation_of_entry(const TiffBytes& tiff, size_t entry) {
  const auto type = tiff.number(entry + 2, 2), count = tiff.number(entry + 4, 4);
  if (!type || count != 1 || (type != kByte && type != kShort && type != kLong)) return {};
  const auto value = tiff.number(entry + 8, type == kByte ? 1 : type == kShort ? 2 : 4);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

// Reads the orientation in EXIF data, which are a TIFF file, perhaps behind "Exif\0\0". Returns nothing if
// there is none or the data are damaged: a picture can be read without it.
std::optional<int> exif_orientation(Bytes exif) {
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

// Reads the orientation in XMP data, for pictures without one in EXIF data.
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

// --- JPEG

constexpr std::string_view kXmp = "http://ns.adobe.com/xap/1.0/\0"sv;

bool is_frame(uint32_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

// Moves `at` behind the next marker: 0xff, which may be repeated, and a byte.
uint32_t next_marker(Bytes file, size_t& at) {
  uint32_t marker = big_endian(file, at, 1);
  check(marker == 0xff, "is a damaged JPEG: byte ", at, " should begin a segment");
  while (marker == 0xff) marker = big_endian(file, at++, 1);
  return marker;
}

void read_frame(Bytes frame, ImageHeader& header) {
  const uint32_t bits = big_endian(frame, 0, 1), components = big_endian(frame, 5, 1);
  check(bits == 8, "is a JPEG of ", bits, " bits, only 8 can be read: save it with 8 bits, or as a PNG");
  check(components != 4, "is a JPEG in CMYK, which is for printing: convert it to RGB");
  check(components == 1 || components == 3, "is a JPEG of ", components,
        " components, must have 1 or 3: save it as a PNG");
  header.height = big_endian(frame, 1, 2);
  header.width = big_endian(frame, 3, 2);
}

ImageHeader jpeg_header(Bytes file) {
  ImageHeader header{ImageKind::jpeg};
  std::vector<std::byte> exif;  // EXIF data, which may be divided among segments
  std::optional<int> of_xmp;
  for (size_t at = 2;;) {
    const uint32_t marker = next_marker(file, at);
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) continue;  // these have no length
    if (marker == 0xd9 || marker == 0xda) break;  // end of the image, or start of the pixels
    const uint32_t length = big_endian(file, at, 2);
    check(length >= 2, "is a damaged JPEG: a segment of ", length, " bytes at byte ", at);
    const Bytes segment = part(file, at + 2, length - 2);
    if (is_frame(marker)) read_frame(segment, header);
    if (marker == 0xe1 && text_of(segment).starts_with("Exif\0\0"sv))
      exif.insert(exif.end(), segment.begin() + 6, segment.end());
    if (marker == 0xe1 && text_of(segment).starts_with(kXmp)) of_xmp = xmp_orientation(text_of(segment));
    at += length;
  }
  header.orientation = exif_orientation(exif).value_or(of_xmp.value_or(1));
  return header;
}

// --- PNG

ImageHeader png_header(Bytes file) {
  constexpr size_t kAround = 12;  // size of a chunk's length, name and checksum
  ImageHeader header{ImageKind::png};
  check(text_of(part(file, 12, 4)) == "IHDR", "is a damaged PNG: it does not begin with its size");
  header.width = big_endian(file, 16, 4);
  header.height = big_endian(file, 20, 4);
  for (size_t at = 8; at < file.size();) {
    const size_t length = big_endian(file, at, 4);
    const std::string_view name = text_of(part(file, at + 4, 4));
    const Bytes chunk = part(file, at + 8, length);
    if (name == "acTL" && big_endian(chunk, 0, 4) > 1) refuse_animation();
    if (name == "eXIf") header.orientation = exif_orientation(chunk).value_or(1);
    if (name == "IEND") break;
    at += length + kAround;
  }
  return header;
}

// --- WebP

void read_webp_size(std::string_view name, Bytes chunk, ImageHeader& header) {
  if (name == "VP8X") {
    if (big_endian(chunk, 0, 1) & 0x02) refuse_animation();
    header.width = little_endian(chunk, 4, 3) + 1;
    header.height = little_endian(chunk, 7, 3) + 1;
  } else if (name == "VP8 ") {
    header.width = little_endian(chunk, 6, 2) & 0x3fff;
    header.height = little_endian(chunk, 8, 2) & 0x3fff;
  } else {
    const uint32_t sizes = little_endian(chunk, 1, 4);
    header.width = (sizes & 0x3fff) + 1;
    header.height = (sizes >> 14 & 0x3fff) + 1;
  }
}

ImageHeader webp_header(Bytes file) {
  ImageHeader header{ImageKind::webp};
  const std::string_view first = text_of(part(file, 12, 4));
  check(first == "VP8X" || first == "VP8 " || first == "VP8L",
        "is a damaged WebP: it does not begin with its size");
  const size_t end = std::min(file.size(), size_t{8} + little_endian(file, 4, 4));
  for (size_t at = 12; at < end;) {
    const size_t length = little_endian(file, at + 4, 4);
    const Bytes chunk = part(file, at + 8, length);
    if (at == 12) read_webp_size(first, chunk, header);
    if (text_of(part(file, at, 4)) == "EXIF") header.orientation = exif_orientation(chunk).value_or(1);
    at += 8 + length + length % 2;  // chunks begin at even bytes
  }
  return header;
}

// --- all kinds

std::string name_of_other(std::string_view file) {
  if (file.starts_with("GIF8")) return "a GIF";
  if (file.starts_with("BM")) return "a BMP";
  if (file.starts_with("II*\0"sv) || file.starts_with("MM\0*"sv)) return "a TIFF";
  if (file.size() >= 12 && file.substr(4, 4) == "ftyp") return "a HEIC, AVIF or other file of MPEG-4";
  return "no JPEG, PNG or WebP";
}

ImageHeader read_any_header(Bytes file) {
  const std::string_view text = text_of(file);
  if (text.starts_with("\xff\xd8\xff")) return jpeg_header(file);
  if (text.starts_with("\x89PNG\r\n\x1a\n")) return png_header(file);
  if (text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP") return webp_header(file);
  fail(str("is ", file.empty() ? "empty" : name_of_other(text), ": convert it to JPEG or PNG"));
}

}  // namespace

ImageHeader read_image_header(std::span<const std::byte> file) {
  const ImageHeader header = read_any_header(file);
  check(header.width >= 1 && header.height >= 1, "is a damaged ", header.kind, " of ", header.width, " x ",
        header.height, " pixels");
  return header;
}

}  // namespace flatshard
