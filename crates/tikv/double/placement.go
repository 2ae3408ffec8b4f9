package main

import (
	"context"
	"encoding/hex"
	"io"
	"sync/atomic"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/tikv/client-go/v2/testutils"
	"github.com/tikv/client-go/v2/util/codec"
	pd "github.com/tikv/pd/client"
)

// placement is PD: where regions are, and what time it is.
type placement struct {
	pdpb.UnimplementedPDServer
	client  pd.Client
	address string
	// What it was told last.
	safePoint atomic.Uint64
}

func header() *pdpb.ResponseHeader {
	return &pdpb.ResponseHeader{ClusterId: 1}
}

func (p *placement) GetMembers(context.Context, *pdpb.GetMembersRequest) (*pdpb.GetMembersResponse, error) {
	self := &pdpb.Member{Name: "double", MemberId: 1, ClientUrls: []string{"http://" + p.address}}
	return &pdpb.GetMembersResponse{
		Header: header(), Members: []*pdpb.Member{self}, Leader: self, EtcdLeader: self,
	}, nil
}

// Tso gives as many timestamps as are asked for, and says the last of them.
func (p *placement) Tso(stream pdpb.PD_TsoServer) error {
	for {
		request, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var physical, logical int64
		for got := uint32(0); got < request.Count; {
			nextPhysical, nextLogical, err := p.client.GetTS(stream.Context())
			if err != nil {
				return err
			}
			// They have to be of one millisecond.
			if nextPhysical != physical {
				got = 0
			}
			physical, logical = nextPhysical, nextLogical
			got++
		}
		answer := &pdpb.TsoResponse{
			Header: header(), Count: request.Count,
			Timestamp: &pdpb.Timestamp{Physical: physical, Logical: logical},
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func found(region *pd.Region, err error) (*pdpb.GetRegionResponse, error) {
	if err != nil {
		return nil, err
	}
	return &pdpb.GetRegionResponse{Header: header(), Region: region.Meta, Leader: region.Leader}, nil
}

func (p *placement) GetRegion(ctx context.Context, request *pdpb.GetRegionRequest) (*pdpb.GetRegionResponse, error) {
	return found(p.client.GetRegion(ctx, request.RegionKey))
}

func (p *placement) GetRegionByID(ctx context.Context, request *pdpb.GetRegionByIDRequest) (*pdpb.GetRegionResponse, error) {
	return found(p.client.GetRegionByID(ctx, request.RegionId))
}

func (p *placement) GetStore(ctx context.Context, request *pdpb.GetStoreRequest) (*pdpb.GetStoreResponse, error) {
	store, err := p.client.GetStore(ctx, request.StoreId)
	if err != nil {
		return nil, err
	}
	return &pdpb.GetStoreResponse{Header: header(), Store: store}, nil
}

func (p *placement) GetAllStores(ctx context.Context, _ *pdpb.GetAllStoresRequest) (*pdpb.GetAllStoresResponse, error) {
	stores, err := p.client.GetAllStores(ctx)
	if err != nil {
		return nil, err
	}
	return &pdpb.GetAllStoresResponse{Header: header(), Stores: stores}, nil
}

func (p *placement) UpdateGCSafePoint(ctx context.Context, request *pdpb.UpdateGCSafePointRequest) (*pdpb.UpdateGCSafePointResponse, error) {
	now, err := p.client.UpdateGCSafePoint(ctx, request.SafePoint)
	if err != nil {
		return nil, err
	}
	p.safePoint.Store(now)
	return &pdpb.UpdateGCSafePointResponse{Header: header(), NewSafePoint: now}, nil
}

// regions are the ranges of keys that one server has.
type regions struct {
	cluster *testutils.MockCluster
	client  pd.Client
}

// split makes two regions of the one that has a key, in hexadecimal: the second begins with it.
func (r *regions) split(text string) string {
	key, err := hex.DecodeString(text)
	if err != nil {
		return err.Error()
	}
	whole, err := r.client.GetRegion(context.Background(), codec.EncodeBytes(nil, key))
	if err != nil {
		return err.Error()
	}
	ids := r.cluster.AllocIDs(2)
	r.cluster.Split(whole.Meta.Id, ids[0], key, ids[1:], ids[1])
	return "ok"
}
