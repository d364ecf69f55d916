// RECOUP_API: names that librecoup_torch.so shows; everything else is hidden.
#pragma once

// Makes a name visible outside librecoup_torch.so.
#define RECOUP_API __attribute__((visibility("default")))
