/* A child that reads nothing: it answers every line at once and keeps no record.
 *
 * With $BENCH_OUT it makes a file there when it is given its first record, named after its shard or,
 * below a daemon that does not say which that is, after its process.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *ACTIONS[] = {
    "initialize", "processRecords", "leaseLost", "shardEnded", "shutdownRequested",
};

static void note_read(void)
{
    const char *folder = getenv("BENCH_OUT"), *shard = getenv("KCL_SHARD_ID");
    char path[4096];
    if (folder == NULL)
        return;
    if (shard != NULL)
        snprintf(path, sizeof path, "%s/%s", folder, shard);
    else
        snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
    close(open(path, O_CREAT | O_WRONLY, 0600));
}

int main(void)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int is_read = 0;
    while ((length = getline(&line, &size, stdin)) > 0) {
        char head[48];
        const char *action = NULL;
        size_t kept = (size_t)length < sizeof head - 1 ? (size_t)length : sizeof head - 1;
        memcpy(head, line, kept);
        head[kept] = 0;
        for (size_t i = 0; i < sizeof ACTIONS / sizeof *ACTIONS; i++)
            if (strstr(head, ACTIONS[i]) != NULL)
                action = ACTIONS[i];
        if (action == NULL)
            return 1;
        if (strcmp(action, "processRecords") == 0 && strstr(line, "\"data\"") != NULL && !is_read) {
            is_read = 1;
            note_read();
        }
        printf("{\"action\":\"status\",\"responseFor\":\"%s\"}\n", action);
        fflush(stdout);
    }
    return 0;
}
