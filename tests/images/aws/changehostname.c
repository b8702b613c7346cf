#include <string.h>

/* The name that the platform gives this host, where the container's own is another. */
int gethostname(char *name, size_t length)
{
    static const char host[] = PLACEHOLDER_HOSTNAME;

    if (length < sizeof host)
        return -1;
    strcpy(name, host);
    return 0;
}
