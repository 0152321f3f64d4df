#pragma once
// Where an image of a record is: in a file, or in the record itself.

#include <cstdint>
#include <string>

#include "text/images/resize.h"

namespace flatshard {

struct ImageSource {
  std::string path{};   // of its file; "" if the record holds the bytes
  std::string bytes{};  // of such a file
  // The record has an object with the path or the bytes, as the library datasets writes images, not a text.
  bool is_object = false;
  bool operator==(const ImageSource&) const = default;
};

// The path, or what an image without one is called in an error: "an image of 312 bytes".
std::string name_of(const ImageSource& image);

// A file of an image is at most this large.
inline constexpr int64_t kMostImageBytes = int64_t{1} << 30;

// What is known of an image besides its pixels.
struct ImageFacts {
  ImageSize size;
  int64_t bytes = 0;         // of the file
  uint64_t fingerprint = 0;  // of image_fingerprint()
  bool is_object = false;    // as in its source
};
// Decodes the image, so that one that is damaged is found here. An Error begins with the image's name.
ImageFacts facts_of(const ImageSource& image);

// The bytes of the file. An Error begins with the image's name.
std::string read_image(const ImageSource& image);

// The CRC-64 of the file.
uint64_t image_fingerprint(std::string_view file);
// As earlier versions recorded it: a hash of its size, its first 4 KiB and its last 4 KiB.
uint64_t image_ends_fingerprint(std::string_view file);

}  // namespace flatshard
