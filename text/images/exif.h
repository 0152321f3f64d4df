#pragma once
// The orientation of a picture, by which cameras record that it must be turned. 1 is as stored, 2 to 8 are
// the reflections and quarter turns of EXIF.

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "text/images/resize.h"

namespace flatshard {

// Reads the orientation in EXIF data, which are a TIFF file, perhaps behind "Exif\0\0". Returns nothing if
// there is none or the data are damaged: a picture can be read without it.
std::optional<int> exif_orientation(std::span<const std::byte> exif);
// Reads the orientation in XMP data, for pictures without one in EXIF data.
std::optional<int> xmp_orientation(std::string_view xmp);

// Turns the picture upright. An orientation outside of 1 to 8 counts as 1.
Image oriented(Image image, int orientation);

}  // namespace flatshard
