/* The practical limit of sockets: answers each query with the same address, in batches of 32, without looking at it.
 * usage: responder PORT THREADS */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BATCH = 32, ROOM = 512 };

static int port;
static const unsigned char record[16] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1};

static void *serve(void *unused)
{
	struct mmsghdr messages[BATCH];
	struct iovec parts[BATCH];
	struct sockaddr_in from[BATCH];
	static __thread unsigned char data[BATCH][ROOM + 64];
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int on = 1, room = 4 << 20, s = socket(AF_INET, SOCK_DGRAM, 0);

	setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
	setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
	if (bind(s, (void *)&at, sizeof at))
		exit(1);
	for (;;) {
		memset(messages, 0, sizeof messages);
		for (int i = 0; i < BATCH; i++) {
			parts[i] = (struct iovec){data[i], ROOM};
			messages[i].msg_hdr = (struct msghdr){.msg_name = &from[i], .msg_namelen = sizeof from[i], .msg_iov = &parts[i], .msg_iovlen = 1};
		}
		int n = recvmmsg(s, messages, BATCH, MSG_WAITFORONE, NULL);
		for (int i = 0; i < n; i++) {
			unsigned char *m = data[i];
			m[2] |= 0x84;
			m[7] = 1;
			memcpy(m + messages[i].msg_len, record, sizeof record);
			parts[i].iov_len = messages[i].msg_len + sizeof record;
		}
		for (int sent = 0, k; sent < n && (k = sendmmsg(s, messages + sent, n - sent, 0)) > 0;)
			sent += k;
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc < 3)
		return 2;
	port = atoi(argv[1]);
	for (int i = 1; i < atoi(argv[2]); i++)
		pthread_create(&thread, NULL, serve, NULL);
	serve(NULL);
	return 0;
}
