#pragma once
// The date that templates print with strftime_now(), as YYYY-MM-DD: a rendering is a function of it, and not
// of the clock. Its time of day is midnight.

#include <string>

namespace flatshard {

// In the local time zone.
std::string todays_date();

// An Error that begins with `name`, which says what has the value, unless it is a date of four digits, two
// and two.
void check_date(const std::string& name, const std::string& date);

// As Python's datetime.strftime() prints the date, with English names.
std::string formatted_date(const std::string& date, const std::string& format);

}  // namespace flatshard
