#pragma once
// The orientation of a picture: how cameras say that it must be turned. 1 is as stored, 2 to 8 are the
// reflections and quarter turns of EXIF.

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "text/images/resize.h"

namespace flatshard {

// Of EXIF data, which are a TIFF file, perhaps behind "Exif\0\0"; empty if they have none. Damaged data
// have none: a picture can be read without them.
std::optional<int> exif_orientation(std::span<const std::byte> exif);
// Of XMP data, where EXIF data have none.
std::optional<int> xmp_orientation(std::string_view xmp);

// The picture as it is to be seen. Orientations outside of 1 to 8 are 1.
Image oriented(Image image, int orientation);

}  // namespace flatshard
