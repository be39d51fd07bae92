package sshgate

import (
	"encoding/binary"
	"fmt"
)

// fileNames reads the client's side of sftp (version 3, draft-ietf-secsh-filexfer-02, and OpenSSH's extensions) as it passes by, and
// tells what is done to which file. It changes nothing and delays nothing; what it does not understand it leaves alone. Its zero value is ready.
type fileNames struct {
	packet []byte // of the packet under way: its header, and all of it if it is one that names files
	want   int    // how long packet becomes
	skip   uint32 // bytes of the packet that are of no interest
	lost   bool   // what came is not sftp
}

// maxNames bounds what of a packet is read for its names; paths are at most 4 KiB long, twice. Servers leave alone what follows the names, so that a packet may
// be made as long as one likes: its names are read all the same.
const maxNames = 16 << 10

// The packets that name files.
const (
	sftpOpen, sftpSetStat, sftpRemove, sftpMakeDirectory, sftpRemoveDirectory, sftpRename, sftpSymlink, sftpExtended = 3, 9, 13, 14, 15, 18, 20, 200
	sftpOpenDirectory                                                                                                = 11
)

// header is the length (4), the kind (1) and the number (4).
const sftpHeader = 9

// write takes what the client sent and returns what it wants done.
func (f *fileNames) write(data []byte) (done []string) {
	for len(data) > 0 && !f.lost {
		if f.skip > 0 && f.want == 0 {
			step := min(uint32(len(data)), f.skip)
			data, f.skip = data[step:], f.skip-step
			continue
		}
		if f.want == 0 {
			f.want = 5
		}
		step := min(len(data), f.want-len(f.packet))
		f.packet, data = append(f.packet, data[:step]...), data[step:]
		if len(f.packet) < f.want {
			break
		}
		if f.want == 5 {
			f.begun()
			continue
		}
		if what := fileOperation(f.packet[4], f.packet[sftpHeader:]); what != "" {
			done = append(done, what)
		}
		f.packet, f.want = f.packet[:0], 0
	}
	return done
}

// begun decides by the length and the kind what becomes of a packet.
func (f *fileNames) begun() {
	length := binary.BigEndian.Uint32(f.packet)
	switch kind := f.packet[4]; {
	case length == 0 || length > 1<<24:
		f.lost = true // the servers that are known end with it
	case length >= sftpHeader-4 && namesFiles(kind):
		f.want = 4 + int(min(length, maxNames))
		f.skip = length - min(length, maxNames) // once that is read
	default:
		f.skip, f.packet, f.want = length-1, f.packet[:0], 0
	}
}

func namesFiles(kind byte) bool {
	switch kind {
	case sftpOpen, sftpSetStat, sftpRemove, sftpMakeDirectory, sftpRemoveDirectory, sftpRename, sftpSymlink, sftpExtended, sftpOpenDirectory:
		return true
	}
	return false
}

// fileOperation says in words what a packet asks for.
func fileOperation(kind byte, body []byte) string {
	first, body, ok := sftpText(body)
	if !ok {
		return ""
	}
	switch kind {
	case sftpOpen:
		if len(body) < 4 {
			return ""
		}
		const write, appending = 0x2, 0x4
		if binary.BigEndian.Uint32(body)&(write|appending) != 0 {
			return "sftp write " + first
		}
		return "sftp read " + first
	case sftpSetStat:
		return "sftp set attributes of " + first
	case sftpRemove:
		return "sftp remove " + first
	case sftpMakeDirectory:
		return "sftp make directory " + first
	case sftpRemoveDirectory:
		return "sftp remove directory " + first
	case sftpOpenDirectory:
		return "sftp list " + first
	}
	second, rest, ok := sftpText(body)
	if !ok {
		return ""
	}
	switch kind {
	case sftpRename:
		return fmt.Sprintf("sftp rename %s to %s", first, second)
	case sftpSymlink:
		return fmt.Sprintf("sftp link %s and %s", first, second)
	}
	third, _, ok := sftpText(rest)
	if !ok {
		return ""
	}
	switch first { // of an extended packet, its name
	case "posix-rename@openssh.com":
		return fmt.Sprintf("sftp rename %s to %s", second, third)
	case "lsetstat@openssh.com":
		return "sftp set attributes of " + second
	case "hardlink@openssh.com":
		return fmt.Sprintf("sftp link %s and %s", second, third)
	}
	return ""
}

func sftpText(from []byte) (text string, rest []byte, ok bool) {
	if len(from) < 4 || uint64(len(from)-4) < uint64(binary.BigEndian.Uint32(from)) {
		return "", nil, false
	}
	end := 4 + binary.BigEndian.Uint32(from)
	return printable(string(from[4:end])), from[end:], true
}
