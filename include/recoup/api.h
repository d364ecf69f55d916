// RECOUP_API: names that recoup's shared libraries show; all others are hidden.
#pragma once

// Makes a name visible outside its library: to programs, or to librecoup_offline.so.
#define RECOUP_API __attribute__((visibility("default")))
