#pragma once
// Records of preferences, in the forms of published data sets: a prompt, an answer that was chosen, and one
// that was rejected.
//   {"prompt": "...", "chosen": "...", "rejected": "..."}
//   {"prompt": [messages], "chosen": [messages], "rejected": [messages]}
//   {"chosen": ..., "rejected": ...}, texts or messages that begin with the same prompt
// Or an answer alone, with the judgement of it:
//   {"prompt": ..., "completion": ..., "label": true}
// Other members, such as tools and images, mean what they mean in conversations (text/chat/conversation.h).

#include "text/data/corpus.h"

namespace flatshard {

// Both are records of a prompt with its completion.
struct PreferencePair {
  Record chosen, rejected;
};

// An Error begins with the record's `where`.
PreferencePair pair_of(const Record& record);

// A record of a prompt with its completion, and of the same prompt with the completion of another record.
struct LabeledAnswer {
  Record own, other;
  bool is_good;
};
LabeledAnswer labeled_answer_of(const Record& record, const Record& another);

}  // namespace flatshard
