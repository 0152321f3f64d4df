#pragma once
// Images of records. A message shows them as parts of its content:
//
//   {"type": "image", "path": "cat.jpg"}        a file; "image" and "url" mean the same
//   {"type": "image", "image": "data:image/png;base64,..."}     or an object, {"bytes": base64, "path": ...}
//   {"type": "image_url", "image_url": {"url": ...}}            as in OpenAI's chats
//   {"type": "image"}                            the next one that the record lists
//
// A record lists images in "images", "image" or, if it names a picture, "file_name": one image or several,
// each written as in a part. Listed images fill the parts that name no image. If there are no such parts,
// they replace each <image> in messages that are not the assistant's. If there is no <image> either, they
// precede the text of the user's first message. Paths are relative to the folder of the record's file.

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/chat/conversation.h"

namespace flatshard {

// Takes the images out of the messages, leaving {"type": "image"} as the part of each, and returns them in
// the order in which the messages show them. An image named by neither a part nor the record is empty.
// Messages without images are left unchanged. For a record without messages, which is a prompt and a
// completion, returns the images that the record lists.
std::vector<ShownImage> take_images(const nlohmann::ordered_json& record, const std::string& folder,
                                    std::vector<nlohmann::ordered_json>& messages);

}  // namespace flatshard
