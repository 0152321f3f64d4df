#include "text/images/image_source.h"

#include <algorithm>
#include <optional>
#include <span>

#include "runtime/check.h"
#include "runtime/crc64.h"
#include "runtime/error_context.h"
#include "runtime/mapped_file.h"
#include "runtime/sha256.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "text/images/image_file.h"

namespace flatshard {
namespace {

constexpr size_t kHashedBytes = 4096;  // bytes hashed at each end

ImageFacts facts_of_file(std::string_view file, const std::string& name) {
  check(std::ssize(file) <= kMostImageBytes, name, ": has ", file.size(), " bytes, must have at most ",
        kMostImageBytes);
  const Image image = with_place(name, [&] { return decoded(std::as_bytes(std::span(file))); });
  return {
      .size = {image.width, image.height}, .bytes = std::ssize(file), .fingerprint = image_fingerprint(file)};
}

}  // namespace

std::string name_of(const ImageSource& image) {
  return image.path.empty() ? "an image of " + counted(std::ssize(image.bytes), "byte") : image.path;
}

ImageFacts facts_of(const ImageSource& image) {
  check(image != ImageSource{},
        "an image has neither a path nor bytes: write its path, or list it in \"images\"");
  ImageFacts facts = image.path.empty() ? facts_of_file(image.bytes, name_of(image))
                                        : facts_of_file(MappedFile(image.path).text(), image.path);
  facts.is_object = image.is_object;
  return facts;
}

std::string read_image(const ImageSource& image) {
  return image.path.empty() ? image.bytes : read_whole_file(image.path, kMostImageBytes);
}

uint64_t image_fingerprint(std::string_view file) { return crc64(std::as_bytes(std::span(file))); }

uint64_t image_ends_fingerprint(std::string_view file) {
  Sha256 sha;
  const std::string size = str(file.size(), ' ');
  sha.add(size.data(), size.size());
  const size_t first = std::min(file.size(), kHashedBytes),
               last = std::min(file.size() - first, kHashedBytes);
  sha.add(file.data(), first);
  sha.add(file.data() + file.size() - last, last);
  uint64_t value = 0;
  for (const char digit : sha.hex().substr(0, 16))
    value = value << 4 | static_cast<uint64_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
  return value;
}

}  // namespace flatshard
