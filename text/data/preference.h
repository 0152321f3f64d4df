#pragma once
// Records of preferences, in the forms of published data sets: a prompt, a chosen answer and a rejected
// answer.
//   {"prompt": "...", "chosen": "...", "rejected": "..."}
//   {"prompt": [messages], "chosen": [messages], "rejected": [messages]}
//   {"chosen": ..., "rejected": ...}, texts or messages that begin with the same prompt
// Or a single answer and its label, good or bad:
//   {"prompt": ..., "completion": ..., "label": true}
// Other members, such as tools and images, have the same meaning as in conversations
// (text/chat/conversation.h).

#include "text/data/corpus.h"

namespace flatshard {

// Both are records of the prompt with a completion.
struct PreferencePair {
  Record chosen, rejected;
};

// An Error begins with `record.where`.
PreferencePair pair_of(const Record& record);

// A record of a prompt with its completion, and one of the same prompt with the completion of another record.
struct LabeledAnswer {
  Record own, other;
  bool is_good;
};
LabeledAnswer labeled_answer_of(const Record& record, const Record& another);

}  // namespace flatshard
