#pragma once
// Images of records. A message shows them as parts of its content:
//
//   {"type": "image", "path": "cat.jpg"}        a file; "image" and "url" mean the same
//   {"type": "image", "image": "data:image/png;base64,..."}     or an object, {"bytes": base64, "path": ...}
//   {"type": "image_url", "image_url": {"url": ...}}            as in OpenAI's chats
//   {"type": "image"}                            the next one that the record lists
//
// A record lists images in "images", "image" or, if that names a picture, "file_name": one or several, each
// written as in a part. They are those of the parts that name none; if there are no such parts, those of each
// <image> in a message that is not the assistant's; if there is none, they come before the text of the first
// message of the user. Paths are relative to the folder of the record's file.

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/chat/conversation.h"

namespace flatshard {

// Takes the images out of messages, so that the part of each is {"type": "image"}, and returns them in the
// order in which the messages show them; one that neither a part nor the record names is empty. Leaves
// messages as they are if there are none. Of a record without messages, which is a prompt and a completion,
// returns those that it lists.
std::vector<ShownImage> take_images(const nlohmann::ordered_json& record, const std::string& folder,
                                    std::vector<nlohmann::ordered_json>& messages);

}  // namespace flatshard
