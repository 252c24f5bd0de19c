//! Symbols of the functions, and their versions.
//!
//! `.symver` needs the symbol to be defined in the object that names its version, and the compiler
//! says of no function in which object it is. So the symbols are defined by assembly: each is a
//! jump to its function.

use core::arch::global_asm;

use crate::{address, device, events, fork, gids, kernel_structs, names, rate, sysfs, unsupported};

macro_rules! export {
    ($($version:literal { $($symbol:literal => $function:path;)* })*) => { $($(
        global_asm!(
            ".pushsection .text",
            concat!(".globl soft.", $symbol),
            concat!(".type soft.", $symbol, ", @function"),
            concat!("soft.", $symbol, ": jmp {function}"),
            concat!(".size soft.", $symbol, ", . - soft.", $symbol),
            concat!(".symver soft.", $symbol, ", ", $symbol, "@@", $version, ", remove"),
            ".popsection",
            function = sym $function,
        );
    )*)* };
}

export! {
    "IBVERBS_1.0" {
        "ibv_copy_path_rec_from_kern" => kernel_structs::copy_path_rec_from_kern;
        "ibv_copy_path_rec_to_kern" => kernel_structs::copy_path_rec_to_kern;
        "ibv_copy_qp_attr_from_kern" => kernel_structs::copy_qp_attr_from_kern;
        "ibv_create_comp_channel" => device::create_comp_channel;
        "ibv_destroy_comp_channel" => device::destroy_comp_channel;
        "ibv_get_sysfs_path" => sysfs::get_sysfs_path;
        "ibv_rate_to_mult" => rate::rate_to_mult;
        "ibv_read_sysfs_file" => sysfs::read_sysfs_file;
        "mult_to_ibv_rate" => rate::mult_to_rate;
    }
    "IBVERBS_1.1" {
        "ibv_ack_async_event" => device::ack_async_event;
        "ibv_ack_cq_events" => device::ack_cq_events;
        "ibv_alloc_pd" => device::alloc_pd;
        "ibv_attach_mcast" => device::attach_mcast;
        "ibv_close_device" => device::close_device;
        "ibv_copy_ah_attr_from_kern" => kernel_structs::copy_ah_attr_from_kern;
        "ibv_create_ah" => device::create_ah;
        "ibv_create_ah_from_wc" => address::create_ah_from_wc;
        "ibv_create_cq" => device::create_cq;
        "ibv_create_qp" => device::create_qp;
        "ibv_create_srq" => device::create_srq;
        "ibv_dealloc_pd" => device::dealloc_pd;
        "ibv_dereg_mr" => device::dereg_mr;
        "ibv_destroy_ah" => device::destroy_ah;
        "ibv_destroy_cq" => device::destroy_cq;
        "ibv_destroy_qp" => device::destroy_qp;
        "ibv_destroy_srq" => device::destroy_srq;
        "ibv_detach_mcast" => device::detach_mcast;
        "ibv_dofork_range" => fork::range;
        "ibv_dontfork_range" => fork::range;
        "ibv_event_type_str" => names::event_type_str;
        "ibv_fork_init" => fork::fork_init;
        "ibv_free_device_list" => device::free_device_list;
        "ibv_get_async_event" => events::get_async_event;
        "ibv_get_cq_event" => events::get_cq_event;
        "ibv_get_device_guid" => device::get_device_guid;
        "ibv_get_device_list" => device::get_device_list;
        "ibv_get_device_name" => device::get_device_name;
        "ibv_init_ah_from_wc" => address::init_ah_from_wc;
        "ibv_modify_qp" => device::modify_qp;
        "ibv_modify_srq" => device::modify_srq;
        "ibv_node_type_str" => names::node_type_str;
        "ibv_open_device" => device::open_device;
        "ibv_port_state_str" => names::port_state_str;
        "ibv_query_device" => device::query_device;
        "ibv_query_gid" => device::query_gid;
        "ibv_query_pkey" => device::query_pkey;
        "ibv_query_port" => device::query_port;
        "ibv_query_qp" => device::query_qp;
        "ibv_query_srq" => device::query_srq;
        "ibv_rate_to_mbps" => rate::rate_to_mbps;
        "ibv_reg_mr" => device::reg_mr;
        "ibv_rereg_mr" => device::rereg_mr;
        "ibv_resize_cq" => device::resize_cq;
        "ibv_resolve_eth_l2_from_gid" => address::resolve_eth_l2_from_gid;
        "ibv_wc_status_str" => names::wc_status_str;
        "mbps_to_ibv_rate" => rate::mbps_to_rate;
    }
    "IBVERBS_1.5" {
        "ibv_get_pkey_index" => gids::get_pkey_index;
    }
    "IBVERBS_1.6" {
        "ibv_qp_to_qp_ex" => device::qp_to_qp_ex;
    }
    "IBVERBS_1.7" {
        "ibv_reg_mr_iova" => device::reg_mr_iova;
    }
    "IBVERBS_1.8" {
        "ibv_reg_mr_iova2" => device::reg_mr_iova2;
    }
    "IBVERBS_1.9" {
        "ibv_get_device_index" => device::get_device_index;
    }
    "IBVERBS_1.10" {
        "ibv_import_device" => device::import_device;
        "ibv_import_mr" => device::import_mr;
        "ibv_import_pd" => device::import_pd;
        "ibv_query_ece" => unsupported::code;
        "ibv_set_ece" => unsupported::code;
        "ibv_unimport_mr" => device::unimport_mr;
        "ibv_unimport_pd" => device::unimport_pd;
    }
    "IBVERBS_1.11" {
        "_ibv_query_gid_ex" => device::query_gid_ex;
        "_ibv_query_gid_table" => gids::query_gid_table;
    }
    "IBVERBS_1.12" {
        "ibv_reg_dmabuf_mr" => unsupported::object;
    }
    "IBVERBS_1.13" {
        "ibv_import_dm" => device::import_dm;
        "ibv_is_fork_initialized" => fork::is_fork_initialized;
        "ibv_unimport_dm" => device::unimport_dm;
    }
    "IBVERBS_1.14" {
        "ibv_query_qp_data_in_order" => device::query_qp_data_in_order;
    }
    "IBVERBS_PRIVATE_34" {
        "__ioctl_final_num_attrs" => unsupported::ioctl_final_num_attrs;
        "__verbs_log" => unsupported::nothing;
        "_verbs_init_and_alloc_context" => unsupported::object;
        "execute_ioctl" => unsupported::code;
        "ibv_cmd_advise_mr" => unsupported::code;
        "ibv_cmd_alloc_dm" => unsupported::code;
        "ibv_cmd_alloc_mw" => unsupported::code;
        "ibv_cmd_alloc_pd" => unsupported::code;
        "ibv_cmd_attach_mcast" => unsupported::code;
        "ibv_cmd_close_xrcd" => unsupported::code;
        "ibv_cmd_create_ah" => unsupported::code;
        "ibv_cmd_create_counters" => unsupported::code;
        "ibv_cmd_create_cq" => unsupported::code;
        "ibv_cmd_create_cq_ex" => unsupported::code;
        "ibv_cmd_create_flow" => unsupported::code;
        "ibv_cmd_create_flow_action_esp" => unsupported::code;
        "ibv_cmd_create_qp" => unsupported::code;
        "ibv_cmd_create_qp_ex2" => unsupported::code;
        "ibv_cmd_create_qp_ex" => unsupported::code;
        "ibv_cmd_create_rwq_ind_table" => unsupported::code;
        "ibv_cmd_create_srq" => unsupported::code;
        "ibv_cmd_create_srq_ex" => unsupported::code;
        "ibv_cmd_create_wq" => unsupported::code;
        "ibv_cmd_dealloc_mw" => unsupported::code;
        "ibv_cmd_dealloc_pd" => unsupported::code;
        "ibv_cmd_dereg_mr" => unsupported::code;
        "ibv_cmd_destroy_ah" => unsupported::code;
        "ibv_cmd_destroy_counters" => unsupported::code;
        "ibv_cmd_destroy_cq" => unsupported::code;
        "ibv_cmd_destroy_flow" => unsupported::code;
        "ibv_cmd_destroy_flow_action" => unsupported::code;
        "ibv_cmd_destroy_qp" => unsupported::code;
        "ibv_cmd_destroy_rwq_ind_table" => unsupported::code;
        "ibv_cmd_destroy_srq" => unsupported::code;
        "ibv_cmd_destroy_wq" => unsupported::code;
        "ibv_cmd_detach_mcast" => unsupported::code;
        "ibv_cmd_free_dm" => unsupported::code;
        "ibv_cmd_get_context" => unsupported::code;
        "ibv_cmd_modify_cq" => unsupported::code;
        "ibv_cmd_modify_flow_action_esp" => unsupported::code;
        "ibv_cmd_modify_qp" => unsupported::code;
        "ibv_cmd_modify_qp_ex" => unsupported::code;
        "ibv_cmd_modify_srq" => unsupported::code;
        "ibv_cmd_modify_wq" => unsupported::code;
        "ibv_cmd_open_qp" => unsupported::code;
        "ibv_cmd_open_xrcd" => unsupported::code;
        "ibv_cmd_poll_cq" => unsupported::count;
        "ibv_cmd_post_recv" => unsupported::code;
        "ibv_cmd_post_send" => unsupported::code;
        "ibv_cmd_post_srq_recv" => unsupported::code;
        "ibv_cmd_query_context" => unsupported::code;
        "ibv_cmd_query_device_any" => unsupported::code;
        "ibv_cmd_query_mr" => unsupported::code;
        "ibv_cmd_query_port" => unsupported::code;
        "ibv_cmd_query_qp" => unsupported::code;
        "ibv_cmd_query_srq" => unsupported::code;
        "ibv_cmd_read_counters" => unsupported::code;
        "ibv_cmd_reg_dm_mr" => unsupported::code;
        "ibv_cmd_reg_dmabuf_mr" => unsupported::code;
        "ibv_cmd_reg_mr" => unsupported::code;
        "ibv_cmd_req_notify_cq" => unsupported::code;
        "ibv_cmd_rereg_mr" => unsupported::code;
        "ibv_cmd_resize_cq" => unsupported::code;
        "ibv_query_gid_type" => gids::query_gid_type;
        "ibv_read_ibdev_sysfs_file" => unsupported::count;
        "verbs_init_cq" => unsupported::nothing;
        "verbs_open_device" => unsupported::object;
        "verbs_register_driver_34" => unsupported::nothing;
        "verbs_set_ops" => unsupported::nothing;
        "verbs_uninit_context" => unsupported::nothing;
    }
}

// A variable, not a function: whether providers may destroy objects of a device that is gone.
global_asm!(
    ".pushsection .data",
    ".globl soft.allow_disassociate",
    ".type soft.allow_disassociate, @object",
    "soft.allow_disassociate: .byte 0",
    ".size soft.allow_disassociate, 1",
    ".symver soft.allow_disassociate, \
     verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34, remove",
    ".popsection",
);
