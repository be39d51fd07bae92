package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// NFS-Ganesha serves a small file system in memory on every node (its FSAL_MEM needs no privilege on the disk, and
// NFSv4 no portmapper), and libnfs reads it: neither needs the kernel's NFS, so that both run in any namespace.

const ganeshaConfig = `NFS_CORE_PARAM { Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFSv4 { Graceless = true; Lease_Lifetime = 5; Grace_Period = 5; RecoveryBackend = fs; Minor_Versions = 0, 1, 2; }
MEM { Inode_Size = 4096; }
EXPORT { Export_Id = 1; Path = /export; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 4; FSAL { Name = MEM; } }
LOG { Default_Log_Level = EVENT; }
`

// nfsPatience is how long one read by NFS may take before it is repeated.
const nfsPatience = "1"

// nfsMissing says why no node of this machine can serve NFS; "" if they can.
func nfsMissing() string {
	for program, packageName := range map[string]string{"ganesha.nfsd": "nfs-ganesha", "nfs-cat": "libnfs-utils", "nfs-cp": "libnfs-utils"} {
		if _, err := findProgram(program); err != nil {
			return fmt.Sprintf("the program %s is not installed (Debian package %s)", program, packageName)
		}
	}
	for _, pattern := range []string{"/usr/lib/*/ganesha/libfsalmem.so", "/usr/lib/ganesha/libfsalmem.so"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return ""
		}
	}
	return "NFS-Ganesha has no file system in memory (Debian package nfs-ganesha-mem)"
}

// startNFS runs NFS-Ganesha on a node, with one file in it that has the node's name.
func (s *stage) startNFS(ctx context.Context, node string) error {
	directory := s.node(node)
	config, file := filepath.Join(directory, "ganesha.conf"), filepath.Join(directory, "whoami")
	err := errors.Join(os.WriteFile(config, []byte(ganeshaConfig), 0o644), os.WriteFile(file, []byte(node), 0o644))
	if err != nil {
		return err
	}
	script := `mkdir -p /run/ganesha /var/lib/nfs/ganesha; exec ganesha.nfsd -F -f "$1" -L "$2" -p /run/ganesha.pid`
	server, err := s.start(ctx, node, "sh", "-c", script, "ganesha", config, filepath.Join(directory, "ganesha.log"))
	if err != nil {
		return err
	}
	s.programs = append(s.programs, server)
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return s.wait(ctx, "NFS-Ganesha serves on "+node, func() (bool, error) {
		_, err := s.Output(ctx, node, "timeout", nfsPatience, "nfs-cp", file, "nfs://127.0.0.1/export/whoami?version=4")
		return err == nil, err
	})
}

// nfsReport is what a reader by NFS has seen since its last reset.
type nfsReport struct {
	Reads     int     `json:"reads"`
	Repeated  int     `json:"repeated"`
	Lost      int     `json:"lost"`
	LongestMS float64 `json:"longest_ms"`
}

// nfsReader reads a file through the cluster's name again and again. Safe for concurrent use.
type nfsReader struct {
	mu     sync.Mutex
	report nfsReport
}

// readNFS starts a reader that ends with ctx.
func (s *stage) readNFS(ctx context.Context, member string) *nfsReader {
	r := new(nfsReader)
	url := fmt.Sprintf("nfs://%s/export/whoami?version=4", s.plan.Resolver.Delegations[0].Zone)
	go func() {
		for pause(ctx, 300*time.Millisecond) {
			r.once(func() error {
				out, err := s.Output(ctx, member, "timeout", nfsPatience, "nfs-cat", url)
				if _, known := s.plan.Member(strings.TrimSpace(string(out))); err == nil && !known {
					err = fmt.Errorf("the file says %q, which is no node", out)
				}
				return errors.Join(err, ctx.Err())
			}, ctx)
		}
	}()
	return r
}

// once reads once, with as many repetitions as it takes.
func (r *nfsReader) once(read func() error, ctx context.Context) {
	began := time.Now()
	repeated, lost := false, false
	for read() != nil {
		if ctx.Err() != nil {
			return
		}
		repeated = true
		if lost = time.Since(began) > requestGivenUp; lost {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Reads++
	if repeated {
		r.report.Repeated++
	}
	if lost {
		r.report.Lost++
	}
	r.report.LongestMS = max(r.report.LongestMS, milliseconds(time.Since(began)))
}

// take returns what was seen and starts anew.
func (r *nfsReader) take() nfsReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.report
	r.report = nfsReport{}
	return report
}
