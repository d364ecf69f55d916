// RECOUP_API: names that librecoup_torch.so shows; everything else is hidden.
#pragma once

#define RECOUP_API __attribute__((visibility("default")))
